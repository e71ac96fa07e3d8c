"""A patient's row, read out of an update.

A hospital that trains a linear model on one row sends a change of weights that is a multiple of that row, and a change
of the intercept that is the same multiple of one. Their ratio is the row, for any number of steps and any rate of plain
or momentum gradient descent without weight decay or proximal term; the sign of the intercept's change is the label.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def invert(weights: ArrayLike, intercept: float) -> tuple[NDArray[np.float64], int]:
    """The row ``[F]`` and label (0 or 1) behind a change of ``weights [F]`` and ``intercept`` of logistic regression.

    NaN where the intercept did not change, which one row's training always does.
    """
    change = np.asarray(weights, dtype=np.float64)
    if intercept == 0:
        return np.full(change.shape, np.nan), 0
    return change / intercept, int(intercept > 0)
