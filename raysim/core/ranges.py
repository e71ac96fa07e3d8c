"""Many slices of an array as one index."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """``starts[h], starts[h] + 1, ...``, so many as ``lengths[h]``, for each ``h`` in turn, ``[sum of lengths]``.

    >>> ranges(np.array([7, 0, 3]), np.array([2, 0, 3])).tolist()
    [7, 8, 3, 4, 5]
    """
    before = np.cumsum(lengths) - lengths
    index: NDArray[np.int64] = np.repeat(starts - before, lengths) + np.arange(lengths.sum(), dtype=np.int64)
    return index
