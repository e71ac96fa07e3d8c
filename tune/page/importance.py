"""Importances of searched keys: the share of the variance between trials that each explains (functional ANOVA)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from raysim.tune.choice import Choice
from raysim.tune.page.fanova import shares
from raysim.tune.spaces import Dimension, Params, Space

Floats = NDArray[np.float64]

ENOUGH = 20
"""With fewer completed trials than this, importances are mostly noise and are not computed."""


def importances(choice: Choice, space: Space) -> tuple[list[str], Floats] | None:
    """Return keys ``[K]`` and their importances for each objective ``[K, d]``, which sum to 1; the most important
    first.

    Only keys that all trials have and that vary are used. An objective that is equal in all trials gives NaN. The
    result is None with fewer than two such keys, or fewer than :data:`ENOUGH` trials with all objectives defined.
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
    """Encode trials' values as points ``[n, D]``; also return their sampling box ``[D, 2]`` and each dimension's
    columns.

    A key with listed values has one column for each value, 1 where a trial has that value.
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
    """Return the searched keys with different values in completed trials."""
    return [
        dimension.key
        for dimension in space
        if len({repr(trial.params.get(dimension.key)) for trial in choice.trials}) > 1
    ]
