"""Terms of sums of whole numbers; see :mod:`raysim.core.exact`."""

from __future__ import annotations

import numpy as np


def add(units, end, start, numbers, n):  # type: ignore[no-untyped-def]
    """Add the whole numbers nearest to ``numbers[0] * (end - start)`` to ``units``; ``n`` of each.

    ``numbers[2]`` becomes 1 where a difference is not below ``numbers[1]`` in magnitude.
    """
    factor, limit, over = numbers[np.uint64(0)], numbers[np.uint64(1)], np.uint64(0)
    for i in range(n):
        delta = np.float64(end[i]) - np.float64(start[i])
        over |= np.uint64(not abs(delta) < limit)  # not a number is not below it
        units[i] += np.uint64(np.int64(np.rint(factor * delta)))
    if over:
        numbers[np.uint64(2)] = 1.0
