"""Importances of searched keys: the share of the variance between trials that each key explains (functional ANOVA).

Hutter, Hoos and Leyton-Brown, "An efficient approach for assessing hyperparameter importance" (ICML 2014): a random
forest predicts an objective from the searched keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats
from raysim.tune.choice import Choice
from raysim.tune.spaces import Dimension, Params, Space

ENOUGH = 20
"""The smallest number of completed trials for which importances are more than noise."""


def importances(choice: Choice, space: Space) -> tuple[list[str], Floats] | None:
    """Return the K searched keys and their importances ``[K, d]`` for d objectives.

    Keys are sorted by their mean importance over objectives, the largest first.

    Importances sum to 1 for each objective, and are NaN for an objective that is equal in all trials. Trials with an
    undefined objective, and keys that are absent in a trial or never differ, are left out. The result is None if fewer
    than two keys, or fewer than :data:`ENOUGH` trials, remain.
    """
    defined: NDArray[np.bool_] = np.logical_and.reduce(np.isfinite(choice.values), axis=1)
    trials = [trial for trial, all_defined in zip(choice.trials, defined, strict=True) if all_defined]
    keys = [
        dimension.key
        for dimension in space
        if all(dimension.key in trial.params for trial in trials)
        and len({repr(trial.params[dimension.key]) for trial in trials}) > 1
    ]
    if len(trials) < ENOUGH or len(keys) < 2:
        return None
    dimensions = sorted((dimension for dimension in space if dimension.key in keys), key=lambda each: each.key)
    points, box, columns = _encoded(dimensions, [trial.params for trial in trials])
    keys = [dimension.key for dimension in dimensions]
    explained = np.full((len(keys), len(choice.sweep.names)), np.nan)
    for j, values in enumerate(choice.values[defined].T):
        if np.ptp(values) > 0:
            explained[:, j] = shares(points, values, box, columns)
    order = np.argsort(-np.nan_to_num(explained).mean(axis=1), kind="stable")
    return [keys[i] for i in order], explained[order]


def _encoded(dimensions: Sequence[Dimension], params: Sequence[Params]) -> tuple[Floats, Floats, list[list[int]]]:
    """Encode the values of n trials as points ``[n, D]``.

    Also return the ends of each column's range, ``[D, 2]``, and the columns of each key.
    """
    points: list[Floats] = []
    box: list[tuple[float, float]] = []
    columns = []
    for dimension in dimensions:
        values = [of[dimension.key] for of in params]
        if dimension.listed:
            which = np.array([dimension.values.index(value) for value in values])
            each = [(which == i).astype(np.float64) for i in range(len(dimension.values))]
            ends = (0.0, 1.0)
        else:
            each = [np.array(values, dtype=np.float64)]
            ends = (dimension.low, dimension.high - 1 if dimension.kind == "randint" else dimension.high)
        columns.append(list(range(len(points), len(points) + len(each))))
        points += each
        box += [ends] * len(each)
    return np.stack(points, axis=1), np.array(box), columns


def varied(choice: Choice, space: Space) -> Sequence[str]:
    """Return the searched keys whose values differ between completed trials."""
    return [
        dimension.key
        for dimension in space
        if len({repr(trial.params.get(dimension.key)) for trial in choice.trials}) > 1
    ]


TREES, DEPTH, SEED = 64, 64, 0
"""The random forest's number of trees, its trees' largest depth (both as in Optuna), and its seed."""


def shares(points: Floats, response: Floats, box: Floats, coordinates: Sequence[Sequence[int]]) -> Floats:
    """Compute the share of the variance of ``response`` that each of the ``coordinates`` explains; shares sum to 1.

    ``response [n]`` is the response at each of ``points [n, D]``. A coordinate is one or several columns of ``points``,
    and ``box [D, 2]`` has the ends of each column's range. Shares are means over the trees of a random forest, without
    constant trees. If nothing explains variance, all shares are equal.
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
    return np.asarray(explained / explained.sum())


def _leaves(tree: Any, box: Floats) -> tuple[Floats, Floats]:
    """Return the predictions in the L leaves of a scikit-learn tree, and the leaves' boxes.

    A leaf's box is the part of ``box [D, 2]`` whose points reach the leaf. The result has shapes ``[L]`` and
    ``[L, D, 2]``.
    """
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
    """Average a tree's prediction over all columns except ``columns``, and return the variance of the result.

    ``values`` and ``leaves`` are the predictions and boxes of leaves, and ``box`` is the box of all points.
    """
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
