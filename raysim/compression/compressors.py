"""Five compressors of a vector ``u [P]``.

Each compressor returns the vector ``[P]`` that the server reconstructs. Random compressors also take a generator.
"""

from __future__ import annotations

from math import ceil, log2

import numpy as np

from raysim.core.arrays import Floats

FLOAT_BITS = 32


def top_k(u: Floats, k: int) -> Floats:
    """Keep the ``k`` entries with the largest magnitudes and set the others to 0."""
    if k >= len(u):
        return u.copy()
    largest = np.argsort(-np.abs(u), kind="stable")[:k]
    sent = np.zeros_like(u)
    sent[largest] = u[largest]
    return sent


def random_k(u: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Keep ``k`` uniformly sampled entries of ``u [P]``, multiplied by ``P / k``, and set the others to 0. The result
    is unbiased.
    """
    p = len(u)
    if k >= p:
        return u.copy()
    chosen = rng.choice(p, k, replace=False)
    sent = np.zeros_like(u)
    sent[chosen] = u[chosen] * (p / k)
    return sent


def sign(u: Floats) -> Floats:
    """Replace each entry by its sign times the mean magnitude of all entries. An entry of 0 remains 0."""
    return np.asarray(np.sign(u) * np.abs(u).mean())


def qsgd(u: Floats, levels: int, rng: np.random.Generator) -> Floats:
    """Quantise by QSGD (Alistarh et al. 2017): each magnitude is rounded at random to a multiple of ``|u| / levels``,
    where ``|u|`` is the 2-norm of ``u``. The result is unbiased.
    """
    length = float(np.linalg.norm(u))
    if length == 0.0:
        return np.zeros_like(u)
    scaled = np.abs(u) * levels / length
    below = np.floor(scaled)
    level = below + (rng.random(len(u)) < scaled - below)
    return np.asarray(np.sign(u) * level * (length / levels))


def grid(u: Floats, step: float, bits: int, rng: np.random.Generator) -> Floats:
    """Round each entry at random to the multiple of ``step`` below or above it.

    A multiple is sent as an integer of ``bits`` bits, clipped to ``grid_limit(bits)``. The result is unbiased if no
    entry is clipped.
    """
    low, high = grid_limit(bits)
    return np.clip(np.floor(u / step + rng.random(len(u))), low, high) * step


def grid_limit(bits: int) -> tuple[int, int]:
    """Return the smallest and the largest integer that fit into ``bits`` bits."""
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def top_k_bits(p: int, k: int) -> int:
    """Return the number of bits of a message with ``k`` of ``p`` entries: their values and their positions.

    Positions are sent as ``k`` indices or as ``p`` one-bit flags, whichever needs fewer bits. If ``k >= p``, no
    positions are sent.
    """
    places = 0 if k >= p else min(k * ceil(log2(p)), p)
    return min(k, p) * FLOAT_BITS + places


def random_k_bits(p: int, k: int) -> int:
    """Return the number of bits of a message with the values of ``k`` of ``p`` entries. Positions follow from the run's
    seed and are not sent.
    """
    return min(k, p) * FLOAT_BITS


def sign_bits(u: Floats) -> int:
    """Return the number of bits of the mean magnitude and of one sign per entry of ``u [P]``. If any entry is 0, one
    more bit per entry marks the zeros.
    """
    p = len(u)
    return FLOAT_BITS + p + (p if (u == 0).any() else 0)


def qsgd_bits(p: int, levels: int) -> int:
    """Return the number of bits of the vector's 2-norm, and of a sign and a level for each of ``p`` entries."""
    return FLOAT_BITS + p * (1 + ceil(log2(levels + 1)))


def grid_bits(p: int, bits: int) -> int:
    """Return the number of bits of ``p`` entries with ``bits`` bits each."""
    return p * bits
