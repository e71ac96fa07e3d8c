"""Random masks of dropout."""

from __future__ import annotations

import numpy as np

from raysim.training.loops.writing import called

_STEP, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_0, _1 = np.uint64(0), np.uint64(1)
_16, _27, _30, _31, _32, _48 = (np.uint64(n) for n in (16, 27, 30, 31, 32, 48))
_LOW = np.uint64(0xFFFF)


@called
def _word(seed, k):  # type: ignore[no-untyped-def]
    """Number ``k`` of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014)."""
    z = seed + (k + np.uint64(1)) * _STEP
    z = (z ^ (z >> _30)) * _FIRST
    z = (z ^ (z >> _27)) * _SECOND
    return z ^ (z >> _31)


@called
def _part(word, dropped, zero, factor):  # type: ignore[no-untyped-def]
    return zero if (word & _LOW) < dropped else factor


def store(seed, dropped, values, mask, n):  # type: ignore[no-untyped-def]
    """Store the second of ``values`` in ``mask [n]``, but the first with probability ``dropped / 65536``.

    Each word makes four numbers of it, a quarter of ``n`` apart; the last three may make fewer.
    """
    zero, factor = values[_0], values[_1]
    quarter = (n + np.uint64(3)) // np.uint64(4)
    second, third = quarter + quarter, quarter + quarter + quarter
    whole = max(n, third) - third
    for k in range(whole):
        z = _word(seed, k)
        mask[k] = _part(z, dropped, zero, factor)
        mask[k + quarter] = _part(z >> _16, dropped, zero, factor)
        mask[k + second] = _part(z >> _32, dropped, zero, factor)
        mask[k + third] = _part(z >> _48, dropped, zero, factor)
    for k in range(whole, quarter):
        z = _word(seed, k)
        at = k
        while at < n:
            mask[at] = _part(z, dropped, zero, factor)
            z >>= _16
            at += quarter
