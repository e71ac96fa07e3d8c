"""A compressor and its settings, without or with error feedback."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

import numpy as np

from raysim.compression import compressors
from raysim.core.arrays import Floats
from raysim.core.exact import exact_multiple

Feedback = Literal["none", "ef", "ef21"]


@dataclass(frozen=True)
class Compression:
    """A compressor of updates with its settings."""

    name: str
    """``top_k``, ``random_k``, ``sign``, ``qsgd`` or ``grid``."""
    ratio: float = 0.1
    """For ``top_k`` and ``random_k``: the share of entries that are sent."""
    levels: int = 16
    """For ``qsgd``: the number of steps between 0 and the norm of the vector."""
    bits: int = 8
    """For ``grid``: the number of bits of each entry."""
    step: float = 1e-3
    """For ``grid``: the distance between neighbouring values, in the update's unit."""
    indices: str = "common"
    """For ``random_k``: ``common`` samples entries once for all hospitals of a round, ``own`` separately for each
    hospital."""
    feedback: Feedback = "none"
    """The error feedback. With ``none`` unsent entries are lost; ``ef`` and ``ef21`` are :func:`with_error_feedback`
    and :func:`ef21`."""

    def count(self, p: int) -> int:
        """Return how many of ``p`` entries are sent: ``ratio * p`` rounded up, at least one."""
        return max(1, min(p, ceil(self.ratio * p - 1e-9)))

    def whole(self, weight: float) -> tuple[Compression, float]:
        """Round the step of the ``grid`` compressor so that sums of messages, each multiplied by ``weight``, are exact.
        Return a compression with the rounded step, and the rounded step times ``weight``.
        """
        counts = exact_multiple(weight * self.step)
        return replace(self, step=counts / weight), counts

    def compress(self, u: Floats, rng: np.random.Generator) -> tuple[Floats, int]:
        """Compress ``u [P]``. Return the vector ``[P]`` that the server reconstructs from the message, and the number
        of bits of the message.
        """
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
        """Return the largest number of bits that the message of a vector with ``p`` entries can have."""
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
    """Compress ``update + error`` (error feedback). Return the vector ``[P]`` that the server receives, the new error
    ``[P]`` and the number of bits sent.

    ``error [P]`` is what compression omitted in this hospital's earlier rounds.
    """
    owed = update + error
    sent, bits = compression.compress(owed, rng)
    return sent, owed - sent, bits


def ef21(
    compression: Compression, update: Floats, held: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats, int]:
    """Compress ``update - held`` (EF21, Richtarik et al. 2021). Return the vector ``[P]`` that the server receives, the
    new ``held`` and the number of bits sent.

    ``held [P]`` is the sum of all vectors that the hospital has sent so far. The server stores the same sum for each
    hospital.
    """
    sent, bits = compression.compress(update - held, rng)
    return sent, held + sent, bits
