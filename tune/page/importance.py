"""Importances of searched keys: how much of the variance between trials each explains (functional ANOVA)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from raysim.tune.choice import Choice
from raysim.tune.page.fanova import shares
from raysim.tune.spaces import Dimension, Params, Space

Floats = NDArray[np.float64]

ENOUGH = 20
"""Completed trials below which importances are mostly noise."""


def importances(choice: Choice, space: Space) -> tuple[list[str], Floats] | None:
    """Keys ``[K]``, and their importances for each objective ``[K, d]``, which sum to 1; the most important first.

    Of the keys that every trial has, and where at least two were varied. NaN for an objective on which all trials
    agree. None with fewer than :data:`ENOUGH` trials whose objectives are all defined.
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
    """Trials' values as points ``[n, D]``, the box ``[D, 2]`` they were drawn from, and the columns of each dimension.

    A key with listed values has a column for each of them, 1 where a trial has that value.
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
    """The searched keys that have different values in completed trials."""
    return [
        dimension.key
        for dimension in space
        if len({repr(trial.params.get(dimension.key)) for trial in choice.trials}) > 1
    ]
