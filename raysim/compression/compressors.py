"""Five compressors of a vector ``u [P]``: the vector ``[P]`` that the server reconstructs, and the bits of the message.

Each is a function of the vector and, if it is random, of a generator. A ``*_bits`` function counts ``p`` entries.
"""

from __future__ import annotations

from math import ceil, log2

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FLOAT_BITS = 32


def top_k(u: Floats, k: int) -> Floats:
    """Return the ``k`` entries with the largest magnitudes, the first among equals; 0 elsewhere."""
    if k >= len(u):
        return u.copy()
    kept = np.argsort(-np.abs(u), kind="stable")[:k]
    sent = np.zeros_like(u)
    sent[kept] = u[kept]
    return sent


def random_k(u: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Return ``k`` uniformly sampled entries, times ``P / k``; 0 elsewhere. Unbiased."""
    p = len(u)
    if k >= p:
        return u.copy()
    kept = rng.choice(p, k, replace=False)
    sent = np.zeros_like(u)
    sent[kept] = u[kept] * (p / k)
    return sent


def sign(u: Floats) -> Floats:
    """Return the mean magnitude with each entry's sign; an entry 0 stays 0."""
    sent: Floats = np.sign(u) * np.abs(u).mean()
    return sent


def qsgd(u: Floats, levels: int, rng: np.random.Generator) -> Floats:
    """QSGD (Alistarh et al. 2017): each magnitude is a multiple ``0..levels`` of ``|u| / levels``. Unbiased.

    An entry between two multiples is rounded up or down at random.
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
    """Round each entry at random to the multiple of ``step`` below or above it. Unbiased within ``grid_limit(bits)``.

    Multiples beyond the limit are sent as the limit.
    """
    low, high = grid_limit(bits)
    return np.clip(np.floor(u / step + rng.random(len(u))), low, high) * step


def grid_limit(bits: int) -> tuple[int, int]:
    """Return the least and the largest multiple of the step that fit into ``bits`` bits."""
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def top_k_bits(p: int, k: int) -> int:
    """Count the values, and their places: indices or flags, whichever is shorter; none if all are sent."""
    places = 0 if k >= p else min(k * ceil(log2(p)), p)
    return min(k, p) * FLOAT_BITS + places


def random_k_bits(p: int, k: int) -> int:
    """Count the values alone: the server derives their places from the run's seed."""
    return min(k, p) * FLOAT_BITS


def sign_bits(u: Floats) -> int:
    """Count the mean magnitude and a sign for each entry of ``u [P]``; if some are 0, also a flag for each entry."""
    p = len(u)
    return FLOAT_BITS + p + (p if (u == 0).any() else 0)


def qsgd_bits(p: int, levels: int) -> int:
    """Count the vector's length, and a sign and a level for each entry."""
    return FLOAT_BITS + p * (1 + ceil(log2(levels + 1)))


def grid_bits(p: int, bits: int) -> int:
    """Count ``bits`` for each entry; the server knows the step from the configuration."""
    return p * bits
