"""Types of the arrays that most modules use, and rounding to whole numbers with a given sum."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

Ids = NDArray[np.int64]
"""Indices of hospitals or rows."""


def shared_out(total: int, shares: Floats | Ids) -> Ids:
    """Divide ``total`` into whole numbers in proportion to ``shares [m]``, by the method of largest remainders.

    The sum of the result is exactly ``total``. Among equal remainders, the earlier share is rounded up first.
    """
    exact = total * shares / shares.sum()
    counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: total - int(counts.sum())]] += 1
    return np.asarray(counts)
