"""Functional analysis of variance: the share of a response's variance that each coordinate explains alone.

Hutter, Hoos and Leyton-Brown, "An efficient approach for assessing hyperparameter importance" (ICML 2014): a forest of
regression trees is fitted to points of the box. A tree is constant on each of its leaves, which are boxes. So its mean
over all other coordinates, and the variance of that mean, are sums over leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TREES, DEPTH, SEED = 64, 64, 0
"""The settings of the forest: the number and largest depth of trees are those of Optuna."""


def shares(points: Floats, response: Floats, box: Floats, coordinates: Sequence[Sequence[int]]) -> Floats:
    """Compute the shares ``[K]`` of ``coordinates``, each one or several columns of ``points [n, D]``; they sum to 1.

    ``response [n]`` is the response at each point, and ``box [D, 2]`` has the ends of the columns. Shares are means
    over the trees that are not constant. They are equal if no coordinate explains anything alone, or if all trees are
    constant.
    """
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(n_estimators=TREES, max_depth=DEPTH, random_state=SEED).fit(points, response)
    parts = []
    for estimator in forest.estimators_:
        values, leaves = _leaves(estimator.tree_, box)
        if (whole := _variance(values, np.prod(leaves[:, :, 1] - leaves[:, :, 0], axis=1))) > 0:
            parts.append([_marginal(values, leaves, box, columns) / whole for columns in coordinates])
    explained = np.mean(parts, axis=0) if parts else np.zeros(len(coordinates))
    if explained.sum() == 0:
        return np.full(len(coordinates), 1 / len(coordinates))
    result: Floats = explained / explained.sum()
    return result


def _leaves(tree: Any, box: Floats) -> tuple[Floats, Floats]:
    """Return the predictions of a scikit-learn tree on its leaves ``[L]``, and the boxes of these leaves, ``[L, D,
    2]``."""
    boxes = np.empty((tree.node_count, *box.shape))
    boxes[0] = box
    splits = np.flatnonzero(tree.feature >= 0)  # nodes come before their children
    each = (tree.feature, tree.threshold, tree.children_left, tree.children_right)
    for node, column, cut, left, right in zip(splits, *(values[splits] for values in each), strict=True):
        boxes[left] = boxes[right] = boxes[node]
        boxes[left, column, 1] = boxes[right, column, 0] = cut
    ends = tree.feature < 0
    return tree.value[ends, 0, 0], boxes[ends]


def _marginal(values: Floats, leaves: Floats, box: Floats, columns: Sequence[int]) -> float:
    """Compute the variance over ``columns`` of a tree's mean over all other columns, from its leaves."""
    others = np.delete(leaves, columns, axis=1)
    room = np.prod(np.diff(np.delete(box, columns, axis=0), axis=1))
    share = np.prod(others[:, :, 1] - others[:, :, 0], axis=1) / room
    inside, sizes = [], []
    for column in columns:
        cuts = np.unique(leaves[:, column])
        middle = (cuts[1:] + cuts[:-1]) / 2
        inside.append((leaves[:, column, 0] < middle[:, None]) & (middle[:, None] < leaves[:, column, 1]))
        sizes.append(np.diff(cuts))
    # One row for each cell of the grid into which the leaves' ends divide these columns.
    in_cell = reduce(lambda a, b: (a[:, None] & b[None]).reshape(-1, len(values)), inside)
    size = reduce(lambda a, b: np.multiply.outer(a, b).reshape(-1), sizes)
    return _variance(in_cell @ (values * share), size)


def _variance(values: Floats, weights: Floats) -> float:
    mean = np.average(values, weights=weights)
    return float(np.average(np.square(values - mean), weights=weights))
