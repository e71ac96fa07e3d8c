"""How much of what differs between trials each searched key explains, by Optuna's functional analysis of variance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.tune.choice import Choice
from raysim.tune.search import FromOptuna
from raysim.tune.spaces import Space

ENOUGH = 20
"""Completed trials below which importances are mostly noise."""


def importances(choice: Choice, space: Space) -> tuple[list[str], NDArray[np.float64]] | None:
    """Keys ``[K]``, and their importances for each objective ``[K, d]``, which sum to 1; the most important first.

    Of the keys that every trial has, and where at least two were varied. NaN for an objective on which all trials
    agree. None with fewer than :data:`ENOUGH` trials whose objectives are all defined.
    """
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

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
    study = FromOptuna(choice.sweep, space, 0, trials).study
    shares = np.full((len(keys), len(choice.sweep.names)), np.nan)
    for j in range(len(choice.sweep.names)):
        if np.ptp(choice.values[defined, j]) > 0:
            of = get_param_importances(
                study, evaluator=FanovaImportanceEvaluator(seed=0), params=keys, target=_objective(j)
            )
            shares[:, j] = [of[key] for key in keys]
    order = np.argsort(-np.nan_to_num(shares).mean(axis=1), kind="stable")
    return [keys[i] for i in order], shares[order]


def _objective(j: int) -> Callable[[Any], float]:
    return lambda trial: float(trial.values[j])


def varied(choice: Choice, space: Space) -> Sequence[str]:
    """The searched keys that do not have one value in all completed trials."""
    return [
        dimension.key
        for dimension in space
        if len({repr(trial.params.get(dimension.key)) for trial in choice.trials}) > 1
    ]
