"""Compression on the way: what a hospital sends of its update, what it remembers, and the bits that are counted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from raysim.compression.compression import Compression, ef21, with_error_feedback
from raysim.core.errors import ConfigError
from raysim.core.streams import stream
from raysim.strategies.base import Floats, LocalProblem

if TYPE_CHECKING:
    from raysim.config.sections.compression import CompressionSection


@dataclass(frozen=True)
class Compressing:
    """How updates are compressed in a round; it travels with its plan."""

    compression: Compression
    """The compressor."""
    seed: int
    """Of the run."""
    round: int
    """Which round it is."""

    @staticmethod
    def of(section: CompressionSection, seed: int) -> Compressing:
        """What a section asks for, before any round."""
        return Compressing(compression_of(section), seed, 0)

    @property
    def remembers(self) -> bool:
        """Whether hospitals remember something of it."""
        return self.compression.feedback != "none"

    def exactly(self, weight: float) -> tuple[Compressing, float]:
        """As :meth:`Compression.whole`."""
        compression, counts = self.compression.whole(weight)
        return replace(self, compression=compression), counts

    def sent(self, hospital: int, group: int, update: Floats, before: Floats | None) -> tuple[Floats, Floats, int]:
        """What the server adds up of a hospital's ``update [p]``, what is remembered after ``before``, and the bits.

        With EF21 the server adds up what it holds of the hospital, which the message has just mended.
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

    def check(self, problem: LocalProblem | None, name: str) -> None:
        """Raise ``ConfigError`` where the strategy called ``name`` sends what is no update."""
        if problem is not None and problem.sent is not None and (problem.sent.message is not None or problem.chosen):
            raise ConfigError(
                f"compression.name: strategy '{name}' has hospitals send numbers or zeros beside their updates where "
                "sums are all that the server learns, which is not compressed; leave compression out"
            )
        if problem is not None and problem.sent is not None and problem.sent.what == "parameters":
            raise ConfigError(
                f"compression.name: strategy '{name}' sends whole models, of which nothing can be left out; choose "
                "another or leave compression out"
            )


def compression_of(section: CompressionSection) -> Compression:
    """The compressor that a section names."""
    return Compression(
        name=section.name,
        ratio=section.ratio,
        levels=section.levels,
        bits=section.bits,
        step=section.step,
        indices=section.indices,
        feedback=section.remembers,
    )
