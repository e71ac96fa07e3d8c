"""Fixed bins of scores, in which rows are counted where sums carry noise.

The bins are fixed beforehand, so that they say nothing of rows: ``BINS`` of equal width over margins from ``-WIDEST``
to ``WIDEST``; margins beyond these are in the outermost bins.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

BINS, WIDEST = 128, 8.0
"""How many bins there are, and the margin at which the outermost end."""

Floats = NDArray[np.float64]

CENTRES: Floats = (np.arange(BINS, dtype=np.float64) + 0.5) * (2.0 * WIDEST / BINS) - WIDEST
"""The margin in the middle of each bin, ``[BINS]``."""


def bins_of(margins: ArrayLike) -> NDArray[np.int64]:
    """The bin of each of ``margins [n]``, ``[n]``; NaN is in the middle."""
    z = np.nan_to_num(np.asarray(margins, dtype=np.float64), nan=0.0, posinf=WIDEST, neginf=-WIDEST)
    return np.clip(np.floor((z + WIDEST) * (BINS / (2.0 * WIDEST))), 0, BINS - 1).astype(np.int64)


def one_of_each_bin(margins: ArrayLike, y: ArrayLike) -> Floats:
    """A one for each row in the column of its bin, ``[n, 2 BINS]``: rows of class 0 first, then those of class 1."""
    labels = np.asarray(y, dtype=np.int64)
    ones = np.zeros((len(labels), 2 * BINS))
    ones[np.arange(len(labels)), BINS * labels + bins_of(margins)] = 1.0
    return ones
