"""Searchers, which propose the values of trials: random, grid, or Optuna. Trials are numbered from 1.

Random and grid proposals depend only on the sweep's seed and the trial's number, so that a resumed sweep tries the same
values. Optuna's proposals depend on the trials that finished before, so a resumed sweep passes these to Optuna.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

from raysim.statistics.differences.paired import FEW_HOSPITALS
from raysim.tune.journal import Finished
from raysim.tune.settings import MANY, Sweep
from raysim.tune.spaces import Dimension, Params, Space

STARTUP = 10
"""The number of random trials before Optuna's model is used."""


class ProposalSource(Protocol):
    """Proposes the hyper-parameters of trials and receives their results."""

    def propose(self, number: int) -> Params:
        """Propose the hyper-parameters of trial ``number``."""

    def learn(self, number: int, values: Sequence[float] | None) -> None:
        """Receive the objectives of trial ``number``, some of which may be NaN; None for a failed trial."""


def make_source(sweep: Sweep, space: Space, seed: int, finished: Iterable[Finished]) -> ProposalSource:
    """Build a sweep's searcher. Only Optuna learns from the ``finished`` trials."""
    sweep.check_installed()
    if sweep.searcher == "optuna":
        return FromOptuna(sweep, space, seed, finished)
    return Listed(space, seed, space.grid() if sweep.searcher == "grid" else None)


class Listed:
    """A searcher that proposes random values or, in order, the combinations in ``grid``."""

    def __init__(self, space: Space, seed: int, grid: Sequence[Params] | None) -> None:
        self._space = space
        self._seed = seed
        self._grid = grid

    def propose(self, number: int) -> Params:
        return dict(self._grid[number - 1]) if self._grid is not None else self._space.draw(self._seed, number)

    def learn(self, number: int, values: Sequence[float] | None) -> None:
        """Ignore the results."""


class FromOptuna:
    """Optuna's tree-structured Parzen estimator; it is asked for a key only if the key's condition holds.

    Optuna receives the index of a listed value, because the value may itself be a list. Keys with ``grid`` cycle
    through their combinations.
    """

    def __init__(self, sweep: Sweep, space: Space, seed: int, finished: Iterable[Finished]) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
        self._sweep = sweep
        self._space = space
        self._open: dict[int, Any] = {}
        directions: list[Literal["maximize", "minimize"]] = [
            "maximize" if larger else "minimize" for larger in sweep.larger
        ]
        trials = list(finished)
        # With the same seed a resumed sweep would propose the same values again. constant_liar: concurrent trials
        # should differ from each other.
        sampler = optuna.samplers.TPESampler(seed=seed + len(trials), n_startup_trials=STARTUP, constant_liar=True)
        self._study = optuna.create_study(directions=directions, sampler=sampler)
        for trial in trials:
            self._remember(trial)

    def propose(self, number: int) -> Params:
        turn = self._space.turn(number)
        if turn:
            self._study.enqueue_trial({key: self._index(key, value) for key, value in turn.items()})
        trial = self._study.ask()
        self._open[number] = trial
        return self._space.pick(lambda dimension: self._suggest(trial, dimension))

    def learn(self, number: int, values: Sequence[float] | None) -> None:
        import optuna

        trial = self._open.pop(number)
        if values is None or not all(math.isfinite(value) for value in values):
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(trial, list(values))

    def _suggest(self, trial: Any, dimension: Dimension) -> Any:
        if dimension.listed:
            return dimension.values[trial.suggest_categorical(dimension.key, list(range(len(dimension.values))))]
        if dimension.kind == "randint":
            return trial.suggest_int(dimension.key, int(dimension.low), int(dimension.high) - 1)
        log = "log" in dimension.kind
        return dimension.rounded(trial.suggest_float(dimension.key, dimension.low, dimension.high, log=log))

    def _remember(self, trial: Finished) -> None:
        import optuna

        values = objectives(trial, self._sweep)
        if values is None or not all(math.isfinite(value) for value in values):
            return
        tried = [dimension for dimension in self._space if dimension.key in trial.params]
        self._study.add_trial(
            optuna.trial.create_trial(
                values=list(values),
                params={d.key: self._index(d.key, trial.params[d.key]) for d in tried},
                distributions={d.key: _distribution(d) for d in tried},
            )
        )

    def _index(self, key: str, value: Any) -> Any:
        dimension = next(d for d in self._space if d.key == key)
        return dimension.values.index(value) if dimension.listed else value


def _distribution(dimension: Dimension) -> Any:
    from optuna import distributions

    if dimension.listed:
        return distributions.CategoricalDistribution(list(range(len(dimension.values))))
    if dimension.kind == "randint":
        return distributions.IntDistribution(int(dimension.low), int(dimension.high) - 1)
    return distributions.FloatDistribution(dimension.low, dimension.high, log="log" in dimension.kind)


def objectives(trial: Finished, sweep: Sweep) -> list[float] | None:
    """Return a trial's objectives in the sweep's order, NaN where undefined; None for a failed trial."""
    if trial.status == "failed":
        return None
    means = trial.means()
    few = means.get("hospitals", math.inf) < FEW_HOSPITALS
    return [math.nan if few and name in MANY else means.get(name, math.nan) for name in sweep.names]
