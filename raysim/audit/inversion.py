"""A patient's row, read out of an update.

A hospital that trains a linear model on one row sends a change of weights that is a multiple of that row, and a change
of the intercept that is the same multiple of one. Their ratio is the row, for any number of steps and any rate of plain
or momentum gradient descent without weight decay or proximal term; the sign of the intercept's change is the label.

The same ratio stands at every unit of a first dense layer that one row alone has activated: a network tells rows, too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def invert_layer(weights: ArrayLike, intercepts: ArrayLike) -> NDArray[np.float64]:
    """The row ``[H, F]`` behind each unit's change of ``weights [H, F]`` and ``intercepts [H]`` of a first dense layer.

    It is a patient's where one row alone has activated the unit, and a mean of rows, weighed by what came back to the
    unit, where several have; NaN where none has.
    """
    change, shift = np.asarray(weights, dtype=np.float64), np.asarray(intercepts, dtype=np.float64)
    moved = shift != 0
    rows = np.full(change.shape, np.nan)
    rows[moved] = change[moved] / shift[moved, None]
    return rows


def invert_label(intercepts: ArrayLike) -> int:
    """The label of the row behind a change of the last layer's ``intercepts [C]``, one for two classes or one each."""
    shift = np.asarray(intercepts, dtype=np.float64)
    return int(shift.argmax()) if len(shift) > 1 else int(shift[0] > 0)
