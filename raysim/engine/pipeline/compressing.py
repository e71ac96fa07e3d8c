"""Compression of updates: what a hospital sends, what it remembers, and how many bits it takes."""

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
    """The seed of the run."""
    round: int
    """The round."""

    @staticmethod
    def of(section: CompressionSection, seed: int) -> Compressing:
        """The compression that a section asks for, before any round."""
        return Compressing(section.make(Compression, feedback=section.remembers), seed, 0)

    @property
    def remembers(self) -> bool:
        """Whether hospitals remember residuals."""
        return self.compression.feedback != "none"

    def exactly(self, weight: float) -> tuple[Compressing, float]:
        """As :meth:`Compression.whole`."""
        compression, counts = self.compression.whole(weight)
        return replace(self, compression=compression), counts

    def sent(self, hospital: int, group: int, update: Floats, before: Floats | None) -> tuple[Floats, Floats, int]:
        """A hospital's ``update [p]`` as the server adds it, its memory after ``before``, and the bits of its message.

        With EF21 the server adds its estimate of the hospital's update, which the message has just corrected.
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
        """Raise ``ConfigError`` where the strategy called ``name`` does not send plain updates."""
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
