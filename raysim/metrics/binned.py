"""Fixed bins of scores, for counts that carry noise.

The bins are fixed in advance, so that they reveal nothing about rows. Margins (log odds of the event) from ``-WIDEST``
to ``WIDEST`` are divided into ``BINS`` bins of equal width.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.core.arrays import Floats

BINS, WIDEST = 128, 8.0
"""The number of bins, and the largest absolute margin that they cover."""


CENTRES: Floats = (np.arange(BINS, dtype=np.float64) + 0.5) * (2.0 * WIDEST / BINS) - WIDEST
"""The margin in the middle of each bin, ``[BINS]``."""


def bins_of(margins: ArrayLike) -> NDArray[np.int64]:
    """Return the index of the bin of each margin (log odds); a margin of NaN counts as 0."""
    z = np.nan_to_num(np.asarray(margins, dtype=np.float64), nan=0.0, posinf=WIDEST, neginf=-WIDEST)
    return np.clip(np.floor((z + WIDEST) * (BINS / (2.0 * WIDEST))), 0, BINS - 1).astype(np.int64)


def one_of_each_bin(margins: ArrayLike, y: ArrayLike) -> Floats:
    """Return a matrix ``[n, 2 * BINS]`` with a single 1 in each row, which marks the row's class ``y`` and the bin of
    its margin. The columns of class 0 are first.
    """
    labels = np.asarray(y, dtype=np.int64)
    ones = np.zeros((len(labels), 2 * BINS))
    ones[np.arange(len(labels)), BINS * labels + bins_of(margins)] = 1.0
    return ones
