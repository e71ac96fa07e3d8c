"""Each hospital's histogram of the absolute errors of a real-valued label; predictions stay at the hospital.

Counts are integers, so the counts of several hospitals add up exactly, in any order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.core.arrays import Ints
from raysim.metrics.segments import Segments


class ErrorCounts(NamedTuple):
    """The histogram of the absolute errors of all rows of ``H`` hospitals.

    - ``filled [H]``: the number of bins of a hospital's own histogram that have rows; the hospital sends each of these
      bins with its count. A hospital whose RMSE is not finite sends none.
    - ``bins [B]``: the bins of all hospitals together, ascending. A bin is the first 16 bits of the float32 error, and
      narrower than 1 % of the error. ``rows [B]``: the number of errors in each bin.
    """

    filled: Ints
    bins: NDArray[np.uint16]
    rows: Ints

    @property
    def scalars(self) -> Ints:
        """The number of scalars that each hospital sends, ``[H]``: an index and a count for each bin that has rows."""
        return np.asarray(2 * self.filled)

    @property
    def errors(self) -> NDArray[np.float64]:
        """The absolute errors of all hospitals' rows, ascending, each rounded to the middle of its bin."""
        middle = (self.bins.astype(np.uint32) << np.uint32(16) | np.uint32(0x8000)).view(np.float32)
        return np.repeat(np.where(self.bins == 0, 0.0, middle.astype(np.float64)), self.rows)


def error_counts(predictions: ArrayLike, y: ArrayLike, offsets: ArrayLike) -> ErrorCounts:
    """Build the histogram of the absolute errors of ``predictions [n]`` against labels ``y [n]``; hospital ``h`` has
    the rows ``offsets[h]:offsets[h + 1]``.
    """
    z, labels = np.asarray(predictions, dtype=np.float64), np.asarray(y, dtype=np.float64)
    segments = Segments.of(offsets, z, labels, classes=None)
    with np.errstate(all="ignore"):
        errors = np.abs(z - labels)
        finite = np.isfinite(segments.sums(errors * errors))
    ids = segments.ids()
    sent = finite[ids]
    single = np.minimum(errors[sent], np.finfo(np.float32).max).astype(np.float32)
    bin_of = (single.view(np.uint32) >> np.uint32(16)).astype(np.int64)
    keys = np.unique(ids[sent] << 16 | bin_of)
    bins, rows = np.unique(bin_of, return_counts=True)
    filled = np.bincount(keys >> 16, minlength=segments.count)
    return ErrorCounts(filled, bins.astype(np.uint16), rows.astype(np.int64))


def merged(parts: Iterable[ErrorCounts], order: Ints) -> ErrorCounts:
    """Combine the counts of all actors; each simulates some of ``N`` hospitals. ``order [N]`` are the indices that sort
    the hospitals of all ``parts`` by id.
    """
    each = list(parts)
    total = np.zeros(1 << 16, dtype=np.int64)
    for part in each:
        total[part.bins] += part.rows
    bins = np.flatnonzero(total)
    filled = np.concatenate([part.filled for part in each])[order]
    return ErrorCounts(filled, bins.astype(np.uint16), total[bins])
