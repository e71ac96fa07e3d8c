"""Rows, read out of the sums that a hospital sends for a regression.

A Hessian is ``X' diag(w) X``. Those at two points of a logistic regression have other weights and the same rows: their
generalised eigenvectors, inverted, are the rows, as long as these are no more than the columns. The first entry of a
row is the intercept, 1, which gives its length. The gradient then gives the labels. In general ``k`` calls send
``k p (p + 3) / 2`` numbers of ``n p`` that are unknown, so ``n <= k (p + 3) / 2`` rows are at risk.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RANK = 1e-9
"""Eigenvalues below this share of the greatest are those of directions in which there are no rows."""


def rows_of(first: Floats, second: Floats) -> Floats:
    """The rows ``[n, p]``, in any order, behind two Hessians ``[p, p]`` of the same ``n <= p`` rows.

    The first entry of each row is 1. Where more rows than columns are behind them, what comes back are no rows.
    """
    values, vectors = np.linalg.eigh(first)
    seen = values > RANK * values[-1]
    root = np.sqrt(values[seen])
    # In these coordinates the first Hessian is the identity, so that rows stand at right angles.
    within = vectors[:, seen] / root
    _, turned = np.linalg.eigh(within.T @ second @ within)
    rows = (vectors[:, seen] * root @ turned).T
    read: Floats = np.asarray(rows / rows[:, :1], dtype=np.float64)
    return read


def labels_of(rows: Floats, gradient: Floats, means: Floats | float = 0.5) -> Floats:
    """The labels ``[n]`` of ``rows [n, p]`` behind a ``gradient [p]`` where the model predicts ``means [n]``."""
    residuals = np.linalg.lstsq(rows.T, gradient, rcond=None)[0]
    labels: Floats = np.asarray(residuals + means, dtype=np.float64)
    return labels
