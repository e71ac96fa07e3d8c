"""Rows of one hospital as the figures of calibration take them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from raysim.statistics.clinical.calibration import Groups


def raw(probabilities: ArrayLike, y: ArrayLike) -> Groups:
    """Rows as groups of one, from ``probabilities [n]`` and ``y [n]`` (0 or 1)."""
    p = np.asarray(probabilities, dtype=np.float64)
    with np.errstate(divide="ignore"):
        return Groups(np.log(p) - np.log1p(-p), np.ones(len(p)), np.asarray(y, dtype=np.float64))
