"""Five compressors of a vector ``u [P]``: what the server reads of the message, and how many bits that has.

Each is a function of the vector and of a random generator; the generator's draws are the only chance in it.
"""

from __future__ import annotations

from math import ceil, log2

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FLOAT_BITS = 32


def top_k(u: Floats, k: int) -> Floats:
    """The ``k`` entries with the largest magnitudes, of equal ones the first; 0 elsewhere."""
    if k >= len(u):
        return u.copy()
    kept = np.argsort(-np.abs(u), kind="stable")[:k]
    sent = np.zeros_like(u)
    sent[kept] = u[kept]
    return sent


def random_k(u: Floats, k: int, rng: np.random.Generator) -> Floats:
    """``k`` entries drawn evenly, times ``P / k``; unbiased."""
    p = len(u)
    if k >= p:
        return u.copy()
    kept = rng.choice(p, k, replace=False)
    sent = np.zeros_like(u)
    sent[kept] = u[kept] * (p / k)
    return sent


def sign(u: Floats) -> Floats:
    """The mean magnitude with each entry's sign; 0 has none."""
    sent: Floats = np.sign(u) * np.abs(u).mean()
    return sent


def qsgd(u: Floats, levels: int, rng: np.random.Generator) -> Floats:
    """Each entry as a sign and one of ``levels + 1`` even shares of the length, up or down by chance; unbiased.

    Alistarh et al. 2017.
    """
    length = float(np.linalg.norm(u))
    if length == 0.0:
        return np.zeros_like(u)
    scaled = np.abs(u) * levels / length
    below = np.floor(scaled)
    level = below + (rng.random(len(u)) < scaled - below)
    sent: Floats = np.sign(u) * level * (length / levels)
    return sent


def grid(u: Floats, step: float, bits: int, rng: np.random.Generator) -> Floats:
    """The whole multiple of ``step`` below or above each entry, by chance; unbiased within the range of ``bits`` bits.

    What lies beyond ``grid_limit`` is sent as that.
    """
    low, high = grid_limit(bits)
    return np.clip(np.floor(u / step + rng.random(len(u))), low, high) * step


def grid_limit(bits: int) -> tuple[int, int]:
    """The least and the largest multiple of the step that ``bits`` bits hold."""
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def top_k_bits(p: int, k: int) -> int:
    """The values, and whichever is shorter: their places, or a flag for each entry; no places where all are sent."""
    places = 0 if k >= p else min(k * ceil(log2(p)), p)
    return min(k, p) * FLOAT_BITS + places


def random_k_bits(p: int, k: int) -> int:
    """The values; their places follow from the run's seed."""
    return min(k, p) * FLOAT_BITS


def sign_bits(u: Floats) -> int:
    """The magnitude and a sign for each entry; where some are 0, a flag for each entry too."""
    p = len(u)
    return FLOAT_BITS + p + (p if (u == 0).any() else 0)


def qsgd_bits(p: int, levels: int) -> int:
    """The length, and for each entry a sign and a level."""
    return FLOAT_BITS + p * (1 + ceil(log2(levels + 1)))


def grid_bits(p: int, bits: int) -> int:
    """``bits`` for each entry; the step is known."""
    return p * bits
