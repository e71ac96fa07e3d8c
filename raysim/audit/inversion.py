"""Reconstructs patients' rows from an update, or from the sums for a regression.

A hospital that trains a linear model on a single row sends a change of weights that is a multiple of that row. The
change of the intercept is the same multiple of 1. The ratio of the two changes is therefore the row, unless training
uses Adam, weight decay or a proximal term. The sign of the intercept's change gives the label.

In a network, the same ratio at a unit of the first dense layer is a patient's row if no other row activated the unit.

Rows also follow from the sums that a hospital sends for a logistic regression. Hessians ``X' diag(w) X`` at two points
have different weights ``w`` and the same rows ``X``. If there are at most as many rows as columns, the inverse of the
matrix of the Hessians' generalised eigenvectors contains the rows, up to scale. The intercept of each row is 1, which
gives the scale. The gradient then gives the labels. In general, ``k`` pairs of a gradient and a Hessian give
``k p (p + 3) / 2`` equations for ``n p`` unknowns, where ``n`` is the number of rows and ``p`` the number of columns.
Therefore hospitals with ``n <= k (p + 3) / 2`` rows are at risk.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from raysim.core.arrays import Floats


def invert_layer(weights: ArrayLike, intercepts: ArrayLike) -> Floats:
    """Reconstruct a training row at each unit of a first dense layer, from the changes of the layer's weights and
    intercepts.

    ``weights [H, F]`` and ``intercepts [H]`` are these changes, for ``H`` units and ``F`` features. The result has the
    shape ``[H, F]``, one row for each unit.

    A unit's result is a patient's row if only that row has activated the unit. If several rows have activated it, the
    result is the mean of these rows, weighted by the gradient at the unit. The result is NaN if the unit's intercept
    has not changed.
    """
    change, shift = np.asarray(weights, dtype=np.float64), np.asarray(intercepts, dtype=np.float64)
    moved = shift != 0
    rows = np.full(change.shape, np.nan)
    rows[moved] = change[moved] / shift[moved, None]
    return rows


def invert_label(intercepts: ArrayLike) -> int:
    """Infer the label of a single training row from the change of the last layer's ``intercepts``: ``[C]`` for ``C``
    classes, or ``[1]`` for two classes.
    """
    shift = np.asarray(intercepts, dtype=np.float64)
    return int(shift.argmax()) if len(shift) > 1 else int(shift[0] > 0)


RANK = 1e-9
"""An eigenvalue of a Hessian is treated as 0 if it is at most this share of the largest eigenvalue."""


def rows_of(first: Floats, second: Floats) -> Floats:
    """Reconstruct the rows of a logistic regression from its Hessians at two points.

    ``first`` and ``second`` are the Hessians, ``[p, p]`` each. The rows ``[n, p]``, with ``n <= p``, are in no
    particular order. The first entry of each row is 1, the intercept. With more rows than columns (``n > p``), the
    results are not the hospital's rows.
    """
    values, vectors = np.linalg.eigh(first)
    seen = values > RANK * values[-1]
    root = np.sqrt(values[seen])
    # In these coordinates the first Hessian is the identity, so the rows are orthogonal.
    within = vectors[:, seen] / root
    _, turned = np.linalg.eigh(within.T @ second @ within)
    rows = (vectors[:, seen] * root @ turned).T
    return np.asarray(rows / rows[:, :1], dtype=np.float64)


def labels_of(rows: Floats, gradient: Floats) -> Floats:
    """Infer the label of each of the ``rows [n, p]`` from the ``gradient [p]`` of the log-likelihood at coefficients of
    0, where the model predicts a probability of .5 for each row.
    """
    residuals = np.linalg.lstsq(rows.T, gradient, rcond=None)[0]
    return np.asarray(residuals + 0.5, dtype=np.float64)


EXACT = 1e-3
"""A row counts as reconstructed if each of its features differs from the true value by at most this number, and
its label rounds to the true label."""


def rows_read(X: Floats, y: Floats) -> int:
    """Count how many of a hospital's rows ``X [n, d]``, with labels ``y [n]`` (0 or 1), can be reconstructed from the
    sums it sends for a logistic regression.
    """
    rows = np.column_stack([np.ones(len(X)), X])
    first, gradient = 0.25 * rows.T @ rows, rows.T @ (y - 0.5)
    step = np.linalg.lstsq(first + 1e-6 * np.trace(first) * np.eye(len(first)), gradient, rcond=None)[0]
    means = 1.0 / (1.0 + np.exp(-np.clip(rows @ step, -30.0, 30.0)))
    read = rows_of(first, (rows * (means * (1.0 - means))[:, None]).T @ rows)
    labels = np.rint(labels_of(read, gradient))
    apart = np.abs(read[:, None] - rows).max(axis=2)
    nearest = apart.argmin(axis=0)
    return int(((apart.min(axis=0) <= EXACT) & (labels[nearest] == y)).sum())
