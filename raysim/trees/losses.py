"""Each row's contribution to the sums from which trees are grown: the gradient and the second derivative of its loss.

Both are rounded, row by row, to whole multiples of 2^-30. A row's margin is the initial margin plus the values of the
leaves that the row reaches, all whole multiples of 2^-40. For the squared loss, labels are first divided by a power of
two, ``2^scale``, so that they are between -1 and 1. Sums of numbers between -1 and 1 are exact for up to 2^23 rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats, Ints
from raysim.trees.settings import Loss

GRID = 2.0**30
"""Gradients and second derivatives are whole multiples of ``1 / GRID``."""

MARGIN = 2.0**40
"""Margins and leaf values are whole multiples of ``1 / MARGIN``."""

LARGEST = 2**46
"""The largest magnitude of a leaf value (64), in multiples of ``1 / MARGIN``; larger values are clipped."""

LOG_MEAN = 30.0
"""In the gradients and losses of a Poisson model, larger arguments of ``exp`` are replaced by this number."""


def gradients(loss: Loss, margins: Ints, y: NDArray[Any], scale: int = 0) -> tuple[Floats, Floats]:
    """Return the gradient ``g`` and second derivative ``h`` of each row's loss, with respect to its ``margins [n, K]``.

    Both are ``[n, K]``, whole numbers in units of ``2^-30``. ``y [n]`` are class indices, counts or numbers. For the
    squared error, labels are divided by ``2^scale``.
    """
    z = margins / MARGIN
    if loss == "logistic":
        p = probability(z)
        g, h = p - y[:, None], p * (1 - p)
    elif loss == "softmax":
        p = softmax(z)
        g, h = p - (y[:, None] == np.arange(z.shape[1])), p * (1 - p)
    elif loss == "poisson":
        p = np.exp(np.minimum(z, LOG_MEAN))
        g, h = p - y[:, None], p
    else:
        g, h = z - y[:, None] * 2.0**-scale, np.ones_like(z)
    return np.rint(g * GRID), np.rint(h * GRID)


def probability(z: Floats) -> Floats:
    """Return ``1 / (1 + exp(-z))``."""
    e: Floats = np.exp(-np.abs(z))
    return np.where(z >= 0, 1.0, e) / (1 + e)


def softmax(z: Floats) -> Floats:
    """Return the class probabilities for the logits ``z [n, K]``."""
    e: Floats = np.exp(z - z.max(axis=1, keepdims=True))
    shares: Floats = e / e.sum(axis=1, keepdims=True)
    return shares


def mean_loss(loss: Loss, margins: Ints, y: NDArray[Any], scale: int = 0) -> float:
    """Return the mean loss of rows with ``margins [n, K]`` and labels ``y [n]``; at least one row is needed.

    For squared errors, labels are divided by ``2^scale``. The loss ``poisson`` omits a term that depends only on the
    labels.
    """
    z = margins / MARGIN
    if loss == "logistic":
        losses = np.logaddexp(0.0, z[:, 0]) - y * z[:, 0]
    elif loss == "softmax":
        losses = np.logaddexp.reduce(z, axis=1) - z[np.arange(len(y)), y]
    elif loss == "poisson":
        losses = np.exp(np.minimum(z[:, 0], LOG_MEAN)) - y * z[:, 0]
    else:
        losses = (z[:, 0] - y * 2.0**-scale) ** 2
    return float(losses.mean())


def base(loss: Loss, sums: Floats, rows: int) -> Ints:
    """Return the initial margins ``[K]``, which minimise the loss without any tree, as integers in units of ``2^-40``.

    ``sums`` is the number of rows of each class, ``[C]``, or the sum of the labels ``[1]`` (divided by ``2^scale``).
    For more than two classes, margins have mean 0. Raises ``ValueError`` if a class has no rows, or if all labels of a
    Poisson model are 0.
    """
    if loss in ("logistic", "softmax"):
        if (sums <= 0).any():
            raise ValueError(
                "data.label: a class has no training row, so no tree can predict it; check the label and the split"
            )
        logs = np.log(sums)
        values = logs[1:] - logs[0] if loss == "logistic" else logs - logs.mean()
    else:
        mean = sums / max(rows, 1)
        if loss == "poisson" and not mean[0] > 0:
            raise ValueError("data.label: all counts of training rows are 0; choose another label")
        values = np.log(mean) if loss == "poisson" else mean
    steps: Ints = np.rint(values * MARGIN).astype(np.int64)
    return steps


def check_counts(y: NDArray[Any]) -> None:
    """Raise ``ValueError`` if labels ``y [n]`` are not counts."""
    if not ((y >= 0) & (y == np.rint(y))).all():
        raise ValueError("model.loss: poisson is for labels that are whole numbers of at least 0; write squared")


def label_units(y: NDArray[Any], scale: int) -> Floats:
    """Return labels ``y [n]`` divided by ``2^scale``, as whole numbers in units of ``2^-30``."""
    return np.rint(y * 2.0**-scale * GRID)


def label_scale(y: NDArray[Any]) -> int:
    """Return the smallest whole number ``scale`` of at least 0 such that ``|y| <= 2^scale`` for all labels."""
    most = float(np.abs(y).max(initial=0.0))
    return max(0, int(np.ceil(np.log2(most)))) if most > 0 else 0
