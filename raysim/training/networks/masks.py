"""Random masks of dropout, compiled for this processor."""

from __future__ import annotations

import numpy as np

from raysim.training.networks.compiled import compiled

_STEP, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_16, _27, _30, _31, _32, _48 = (np.uint64(n) for n in (16, 27, 30, 31, 32, 48))
_LOW = np.uint64(0xFFFF)


@compiled
def _word(seed, k):  # type: ignore[no-untyped-def]
    """Number ``k`` of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014)."""
    z = seed + (k + np.uint64(1)) * _STEP
    z = (z ^ (z >> _30)) * _FIRST
    z = (z ^ (z >> _27)) * _SECOND
    return z ^ (z >> _31)


@compiled
def store(seed, dropped, factor, mask):  # type: ignore[no-untyped-def]
    """Store ``factor`` in ``mask [n]``, but zero with probability ``dropped / 65536``.

    Each word makes four numbers of it, a quarter of ``n`` apart; ``n`` is 6 at least.
    """
    zero = mask.dtype.type(0)
    n = np.uint64(len(mask))
    quarter = (n + np.uint64(3)) // np.uint64(4)
    second, third = quarter + quarter, quarter + quarter + quarter
    for k in range(quarter):
        z = _word(seed, k)
        mask[k] = zero if (z & _LOW) < dropped else factor
        mask[k + quarter] = zero if ((z >> _16) & _LOW) < dropped else factor
        mask[k + second] = zero if ((z >> _32) & _LOW) < dropped else factor
        if k + third < n:
            mask[k + third] = zero if (z >> _48) < dropped else factor
