"""Segments: the concatenated rows of many hospitals, divided by offsets, and computations over each segment.

Sums are computed for one segment at a time, so that a segment's results are the same bit for bit whatever other
segments are in the call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.core.arrays import Floats

Rows = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Segments:
    """A division of ``n`` concatenated rows into ``S`` segments, usually hospitals. Segment ``s`` has the rows
    ``offsets[s]:offsets[s + 1]``.
    """

    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @staticmethod
    def of(offsets: ArrayLike, scores: Rows, y: Rows, classes: int | None) -> Segments:
        """Divide the rows ``scores [n, ...]`` and ``y [n]`` into segments by their ``offsets``. Labels ``y`` are
        ``0..classes-1``, or real numbers if ``classes`` is None.

        Raises ``ValueError`` for offsets, shapes or labels that do not fit.
        """
        cuts = np.asarray(offsets, dtype=np.int64)
        if y.ndim != 1 or scores.shape[:1] != y.shape:
            raise ValueError(
                f"y: shape {y.shape} does not fit scores of shape {scores.shape}; give one label for each row of scores"
            )
        if cuts.ndim != 1 or len(cuts) == 0 or cuts[0] != 0 or cuts[-1] != len(y) or (np.diff(cuts) < 0).any():
            raise ValueError(f"offsets: must ascend from 0 to {len(y)}, the number of rows")
        if classes is not None and len(y) and not (y.min() >= 0 and y.max() < classes):
            raise ValueError(f"y: labels {y.min()}..{y.max()} must be within 0..{classes - 1}")
        return Segments(cuts, np.diff(cuts))

    @property
    def count(self) -> int:
        """The number of segments ``S``, empty segments included."""
        return len(self.lengths)

    def ids(self) -> NDArray[np.int64]:
        """Return the index of the segment of each row, ``[n]``."""
        return np.repeat(np.arange(self.count), self.lengths)

    def sums(self, values: Floats) -> Floats:
        """Return the sum of ``values [n]`` over each segment, ``[S]``."""
        return self._added(values, np.dtype(np.float64))

    def counts(self, flags: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return how many of ``flags [n]`` are set in each segment, ``[S]``."""
        return self._added(flags.view(np.uint8), np.dtype(np.int64))

    def _added(self, values: Rows, dtype: np.dtype[Any]) -> Rows:
        out = np.zeros(self.count, dtype)
        full = self.lengths > 0  # reduceat does not support empty segments, which have no rows
        if full.any():
            out[full] = np.add.reduceat(values, self.offsets[:-1][full], dtype=dtype)
        return out

    def holding(self, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return whether each segment is empty or has a row whose flag is set, ``[S]``."""
        return np.asarray((self.lengths == 0) | (self.counts(flags) > 0))


def cumulative(flags: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the number of ``flags [n]`` that are set before each row, ``[n + 1]``; the last number counts all set
    flags.
    """
    out = np.zeros(len(flags) + 1, dtype=np.int64)
    np.cumsum(flags, out=out[1:])
    return out


def sortable(scores: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Return unsigned integers in the same order as the float32 ``scores``."""
    bits = (scores + np.float32(0)).view(np.int32)  # adding 0 turns -0 into 0
    flip = (bits >> 31).view(np.uint32) | np.uint32(1 << 31)
    return bits.view(np.uint32) ^ flip


def floating(values: ArrayLike) -> Rows:
    """Return a contiguous float32 or float64 array: float16 and float32 become float32, other types become float64."""
    array = np.asarray(values)
    kind = np.float32 if array.dtype in (np.float16, np.float32) else np.float64
    return np.ascontiguousarray(array, dtype=kind)


def ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ranges of consecutive numbers, concatenated: range ``h`` has ``lengths[h]`` numbers, from ``starts[h]``.

    >>> ranges(np.array([7, 0, 3]), np.array([2, 0, 3])).tolist()
    [7, 8, 3, 4, 5]
    """
    before = np.cumsum(lengths) - lengths
    return np.asarray(np.repeat(starts - before, lengths) + np.arange(lengths.sum(), dtype=np.int64))
