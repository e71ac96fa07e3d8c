"""Compression of updates: what a hospital sends, what it stores, and the number of bits it sends."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from raysim.compression.compression import Compression, ef21, with_error_feedback
from raysim.core.errors import ConfigError
from raysim.core.streams import stream
from raysim.engine.messages.steps import HospitalStep, Leaving
from raysim.engine.pipeline.step import Step
from raysim.strategies.base import Floats, Ids, LocalProblem

if TYPE_CHECKING:
    from raysim.config.sections.compression import CompressionSection


@dataclass(frozen=True)
class Compressing(HospitalStep):
    """The hospital's side of compression: compress the updates of a round."""

    compression: Compression
    seed: int
    round: int
    in_shares: bool = False
    """Whether updates contain shares of privacy noise. If so, the step of the compressor ``grid`` is rounded so
    that weighted updates can be added exactly."""

    @staticmethod
    def of(section: CompressionSection, seed: int, in_shares: bool = False) -> Compressing:
        """Build the compression that a configuration section describes."""
        return Compressing(section.make(Compression, feedback=section.remembers), seed, 0, in_shares)

    @property
    def remembers(self) -> bool:  # type: ignore[override]
        """Whether hospitals store vectors between rounds, as error feedback requires."""
        return self.compression.feedback != "none"

    def forward(self, leaving: Leaving) -> None:
        weight, compressing, update = leaving.upload.weight, self, leaving.update
        if self.in_shares and self.compression.name == "grid" and weight is not None and weight[leaving.entry]:
            compressing, counts = self.exactly(float(weight[leaving.entry]))
            leaving.grid = compressing.compression.step, counts
        name = f"residual of {leaving.group}"
        travels = slice(None) if leaving.private is None else ~leaving.private
        before = leaving.recall(name)
        sent, remembered, leaving.bits = compressing.sent(leaving.hospital, leaving.group, update[travels], before)
        if self.remembers:
            leaving.remember(name, remembered)
        leaving.update = np.zeros_like(update)
        leaving.update[travels] = sent

    def exactly(self, weight: float) -> tuple[Compressing, float]:
        """Return this compression with a rounded grid step, so that messages times ``weight`` can be added exactly.
        Also return the new grid step times ``weight``; see :meth:`Compression.whole`.
        """
        compression, counts = self.compression.whole(weight)
        return replace(self, compression=compression), counts

    def sent(self, hospital: int, group: int, update: Floats, before: Floats | None) -> tuple[Floats, Floats, int]:
        """Return a hospital's ``update [p]`` as the server adds it, what the hospital stores for the next round, and
        the number of bits of its message.

        ``before`` is what the hospital has stored; None if nothing. With EF21, the server stores an estimate of each
        hospital's update: the message corrects the estimate, and the server adds the corrected estimate.
        """
        made = self.compression
        if made.name == "random_k":
            key = () if made.indices == "common" else (hospital, group)
            rng = stream(self.seed, "randk", self.round, *key)
        else:
            rng = stream(self.seed, "compress", self.round, hospital, group)
        state = np.zeros_like(update) if before is None else before
        if made.feedback == "ef":
            return with_error_feedback(made, update, state, rng)
        if made.feedback == "ef21":
            _, held, bits = ef21(made, update, state, rng)
            return held, held, bits
        sent, bits = made.compress(update, rng)
        return sent, state, bits


class CompressedUpdates(Step):
    """The server's side of compression. It rejects strategies whose messages cannot be compressed. ``name`` is the
    strategy's name in errors.
    """

    def __init__(self, section: CompressionSection, seed: int, name: str, in_shares: bool) -> None:
        self._compressing, self._name = Compressing.of(section, seed, in_shares), name
        self.compression = self._compressing.compression

    @property
    def remembers(self) -> bool:
        """Whether hospitals store vectors between rounds, as error feedback requires."""
        return self._compressing.remembers

    def hospital_step(self, round: int, problem: LocalProblem, ids: Ids) -> Compressing:
        sent = problem.sent
        if problem.spread:
            raise ConfigError(
                f"compression.name: strategy '{self._name}' sends zeros for other sums, to hide to which sum an "
                "update belongs, and zeros cannot be compressed; leave compression out"
            )
        if sent is not None and sent.what == "parameters":
            raise ConfigError(
                f"compression.name: strategy '{self._name}' sends whole models, which cannot be compressed; "
                "choose another strategy or leave compression out"
            )
        return replace(self._compressing, round=round)
