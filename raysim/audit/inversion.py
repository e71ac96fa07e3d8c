"""Reconstructs a patient's row from an update.

A hospital that trains a linear model on one row sends a change of weights that is a multiple of that row. The
intercept's change is the same multiple of one. Their ratio is the row, for any number of steps and any learning rate of
gradient descent, plain or with momentum, without weight decay or proximal term. The sign of the intercept's change is
the label.

The same ratio gives a row at every unit of a first dense layer that one row alone has activated: networks also reveal
rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def invert_layer(weights: ArrayLike, intercepts: ArrayLike) -> NDArray[np.float64]:
    """Compute each unit's row ``[H, F]`` from the changes of ``weights [H, F]`` and ``intercepts [H]`` of a first dense
    layer.

    The result is a patient's row if one row alone has activated the unit. If several have, it is their mean, weighted
    by the gradient at the unit. It is NaN if none has.
    """
    change, shift = np.asarray(weights, dtype=np.float64), np.asarray(intercepts, dtype=np.float64)
    moved = shift != 0
    rows = np.full(change.shape, np.nan)
    rows[moved] = change[moved] / shift[moved, None]
    return rows


def invert_label(intercepts: ArrayLike) -> int:
    """Infer the row's label from the change of the last layer's ``intercepts [C]``: one for two classes, or one per
    class."""
    shift = np.asarray(intercepts, dtype=np.float64)
    return int(shift.argmax()) if len(shift) > 1 else int(shift[0] > 0)
