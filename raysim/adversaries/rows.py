"""Attacks on the rows of a Byzantine hospital: flipped labels, a feature in a wrong unit, a stuck sensor, or a
backdoor.

The functions do not modify their arguments, rows ``X [n, d]`` and labels ``y [n]``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = tuple[NDArray[Any], NDArray[Any]]


def label_flip(X: NDArray[Any], y: NDArray[Any], classes: int, share: float, rng: np.random.Generator) -> Rows:
    """Return rows and labels in which a random ``share`` of the rows has class ``classes - 1 - y`` instead of ``y``."""
    turned = np.where(some(len(y), share, rng), classes - 1 - y, y)
    return X, turned.astype(y.dtype)


def units(
    X: NDArray[Any],
    y: NDArray[Any],
    feature: int,
    factor: float,
    offset: float = 0.0,
    recorded: NDArray[np.bool_] | None = None,
) -> Rows:
    """Return rows in which feature ``feature`` is recorded in a wrong unit: multiplied by ``factor``, plus ``offset``.

    If the feature is standardised, ``offset`` is needed so that the factor applies to the original values. Only the
    rows marked in ``recorded [n]`` change, because imputed values have no wrong unit; None means all rows.
    """
    changed = X.copy()
    wrong = X[:, feature] * factor + offset
    changed[:, feature] = wrong if recorded is None else np.where(recorded, wrong, X[:, feature])
    return changed, y


def stuck(X: NDArray[Any], y: NDArray[Any], feature: int) -> Rows:
    """Return rows in which feature ``feature`` is constant at its mean."""
    changed = X.copy()
    if len(y):
        changed[:, feature] = X[:, feature].mean(dtype=np.float64)
    return changed, y


def backdoor(
    X: NDArray[Any], y: NDArray[Any], feature: int, value: float, label: int, share: float, rng: np.random.Generator
) -> Rows:
    """Return rows and labels in which a random ``share`` of the rows has ``value`` in feature ``feature`` and the label
    ``label``.
    """
    triggered = some(len(y), share, rng)
    changed, labels = X.copy(), y.copy()
    changed[triggered, feature] = value
    labels[triggered] = label
    return changed, labels


def triggered(X: NDArray[Any], feature: int, value: float) -> NDArray[Any]:
    """Return a copy of the rows in which feature ``feature`` is ``value``, the trigger of a backdoor."""
    changed = X.copy()
    changed[:, feature] = value
    return changed


def some(count: int, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return a random mask ``[count]`` that is True for a ``share`` of the rows."""
    chosen = np.zeros(count, dtype=np.bool_)
    chosen[rng.permutation(count)[: round(share * count)]] = True
    return chosen
