"""A compressor by name with its setting, alone or with error feedback."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

import numpy as np

from raysim.compression import compressors
from raysim.compression.compressors import Floats
from raysim.core.exact import exact_multiple

Feedback = Literal["none", "ef", "ef21"]


@dataclass(frozen=True)
class Compression:
    """Which compressor, and how."""

    name: str
    """``top_k``, ``random_k``, ``sign``, ``qsgd`` or ``grid``."""
    ratio: float = 0.1
    """The share of entries that ``top_k`` and ``random_k`` send."""
    levels: int = 16
    """Of QSGD."""
    bits: int = 8
    """Of an entry on the grid."""
    step: float = 1e-3
    """Of the grid."""
    indices: str = "common"
    """Of ``random_k``: ``common`` to all hospitals of a round, or each its ``own``."""
    feedback: Feedback = "none"
    """What becomes of what was not sent."""

    def count(self, p: int) -> int:
        """How many of ``p`` entries are sent: at least one, and the whole of ``ratio * p`` that is not below it."""
        return max(1, min(p, ceil(self.ratio * p - 1e-9)))

    def whole(self, weight: float) -> tuple[Compression, float]:
        """The grid whose multiples, times ``weight``, are added up without rounding, and what one step then counts.

        A sum of messages then tells the sum of their multiples and no more.
        """
        counts = exact_multiple(weight * self.step)
        return replace(self, step=counts / weight), counts

    def compress(self, u: Floats, rng: np.random.Generator) -> tuple[Floats, int]:
        """What the server reads of ``u [P]``, and the bits of the message."""
        p = len(u)
        k = self.count(p)
        if self.name == "top_k":
            return compressors.top_k(u, k), compressors.top_k_bits(p, k)
        if self.name == "random_k":
            return compressors.random_k(u, k, rng), compressors.random_k_bits(p, k)
        if self.name == "sign":
            return compressors.sign(u), compressors.sign_bits(u)
        if self.name == "qsgd":
            return compressors.qsgd(u, self.levels, rng), compressors.qsgd_bits(p, self.levels)
        return compressors.grid(u, self.step, self.bits, rng), compressors.grid_bits(p, self.bits)

    def most_bits(self, p: int) -> int:
        """The most that the message of a vector ``[p]`` can have."""
        k = self.count(p)
        return {
            "top_k": compressors.top_k_bits(p, k),
            "random_k": compressors.random_k_bits(p, k),
            "sign": compressors.sign_bits(np.zeros(p)),
            "qsgd": compressors.qsgd_bits(p, self.levels),
            "grid": compressors.grid_bits(p, self.bits),
        }[self.name]


def with_error_feedback(
    compression: Compression, update: Floats, error: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats, int]:
    """EF: what is sent of ``update + error``, the error that stays for the next time, and the bits.

    What was sent so far and the error add up to the updates so far.
    """
    owed = update + error
    sent, bits = compression.compress(owed, rng)
    return sent, owed - sent, bits


def ef21(
    compression: Compression, update: Floats, held: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats, int]:
    """EF21: what is sent of ``update - held``, what is held then, and the bits.

    The server holds the same for each hospital: it adds up what each has sent (Richtarik et al. 2021).
    """
    sent, bits = compression.compress(update - held, rng)
    return sent, held + sent, bits
