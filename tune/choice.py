"""The outcome of a sweep: the Pareto set of its trials, its hypervolume, and the recommended trial."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from raysim.config.reading import read_tree
from raysim.core.arrays import Floats
from raysim.core.words import counted
from raysim.experiment.tuning import edges
from raysim.metrics.labels import TaskKind, reporting
from raysim.statistics.differences.paired import FEW_HOSPITALS
from raysim.tune import pareto
from raysim.tune.journal import Finished, read_trials
from raysim.tune.search import objectives
from raysim.tune.settings import MANY, Sweep, better, read_sweep

LABELS = {
    "auroc": "mean AUROC",
    "pooled_auroc": "pooled AUROC",
    "mae": "mean MAE",
    "rmse": "mean RMSE",
    "size_bias_abs": "size bias, absolute",
    "gini": "Gini over hospitals",
    "std": "deviation over hospitals",
    "bytes_up": "bytes sent by hospitals",
    "bytes_down": "bytes sent to hospitals",
}
"""Names of objectives in charts and sentences, where they differ from the names in files."""


@dataclass(frozen=True, eq=False)
class Choice:
    """The Pareto set of the ``n`` completed trials over ``d`` objectives, and the trial to recommend."""

    sweep: Sweep
    trials: tuple[Finished, ...]
    values: Floats
    """The objectives, ``[n, d]``; NaN if undefined."""
    front: NDArray[np.bool_]
    """Which trials are in the Pareto set, ``[n]``."""
    crowding: Floats
    """The crowding distance of each trial (:func:`raysim.tune.pareto.crowding`), ``[n]``; NaN outside the Pareto
    set."""
    reference: tuple[float, ...]
    """The point from which the hypervolume is measured: a value of each objective, ``[d]``."""
    hypervolume: float
    knee: pareto.Knee | None
    """The recommended trial; None if no trial has all objectives defined."""

    @property
    def kind(self) -> TaskKind:
        """Return the kind of label that the trials predict."""
        return _kind(self.trials)

    @property
    def recommended(self) -> Finished | None:
        """Return the recommended trial; None if no trial has all objectives defined."""
        return self.trials[self.knee.index] if self.knee is not None else None


def choose(finished: Mapping[int, Finished], sweep: Sweep) -> Choice:
    """Find the Pareto set and the recommended trial among the completed trials.

    Trials that the scheduler stopped, and failed trials, are left out.
    """
    trials = tuple(trial for _, trial in sorted(finished.items()) if trial.status == "completed")
    values = np.array([objectives(trial, sweep) for trial in trials], dtype=np.float64).reshape(-1, len(sweep.names))
    front = pareto.front(values, sweep.larger)
    crowding = np.full(len(trials), np.nan)
    crowding[front] = pareto.crowding(values[front])
    reference = reference_point(values, sweep, _kind(trials))
    return Choice(
        sweep=sweep,
        trials=trials,
        values=values,
        front=front,
        crowding=crowding,
        reference=reference,
        hypervolume=pareto.hypervolume(values, sweep.larger, reference) if len(values) else 0.0,
        knee=pareto.knee(values, sweep.larger),
    )


def choice_in(folder: Path) -> Choice:
    """Return the Pareto set and the recommended trial of the sweep in ``folder``."""
    return choose(read_trials(folder), read_sweep(read_tree(folder / "sweep.yaml")))


def _kind(trials: Sequence[Finished]) -> TaskKind:
    return reporting(trials[0].figures if trials else ())


def reference_point(values: Floats, sweep: Sweep, kind: TaskKind) -> tuple[float, ...]:
    """Return the reference point from which the hypervolume is measured: a value for each objective.

    Each value is the configured one, else the metric's usual worst value, such as 0.5 for an AUROC, else the worst in
    ``values``.
    """
    point = []
    for j, (name, direction) in enumerate(sweep.objectives.items()):
        column = values[:, j][np.isfinite(values[:, j])]
        usual = kind.reference.get(name) if direction == better(name, kind) else None
        worst = float(column.min() if direction == "max" else column.max()) if len(column) else 0.0
        point.append(sweep.reference.get(name, worst if usual is None else usual))
    return tuple(point)


def title(choice: Choice, j: int) -> str:
    """Return the name of objective ``j`` for display."""
    name = choice.sweep.names[j]
    return f"worst decile {choice.kind.title}" if name == "worst_decile" else LABELS.get(name, name)


def headline(choice: Choice) -> str:
    """Return a sentence that names the recommended trial and the reason."""
    if choice.recommended is None:
        return "No completed trial has all objectives defined: there is nothing to recommend."
    on, number = int(choice.front.sum()), choice.recommended.number
    if len(choice.sweep.names) == 1:
        return f"Trial {number}: the best {title(choice, 0)} of {counted(len(choice.trials), 'completed trial')}."
    if on == 1:
        return f"Trial {number}: no other trial is better on any goal."
    return f"Trial {number}: the best compromise of the {on} trials that no other beats on all goals."


def reason(choice: Choice) -> list[str]:
    """Return sentences on why the trial is recommended and how far it is from the best in each objective."""
    if choice.knee is None or choice.recommended is None:
        judged = [trial.means().get("hospitals", math.inf) for trial in choice.trials]
        few = [name for name in choice.sweep.names if name in MANY and min(judged, default=math.inf) < FEW_HOSPITALS]
        why = f" (at least {FEW_HOSPITALS} judged hospitals are needed for {', '.join(few)})" if few else ""
        return [f"no trial has all objectives defined{why}: nothing to recommend"]
    knee, sweep = choice.knee, choice.sweep
    lines = [
        f"recommended: {headline(choice)[0].lower()}{headline(choice)[1:]} Its distance from the best value of every "
        f"goal is {knee.distance:.2f}, with each goal scaled to its range over these trials."
    ]
    spreads = choice.recommended.figures
    for name, cost in zip(sweep.names, knee.costs, strict=True):
        mean, spread = spreads[name]
        if cost.gap == 0:
            lines.append(f"{name} {mean:.4f}: no trial of the set is better")
            continue
        noise = ", less than its spread over seeds" if math.isfinite(spread) and cost.gap < spread else ""
        best = choice.trials[cost.best]
        lines.append(
            f"{name} {mean:.4f}: {cost.gap:.4f} worse than trial {best.number} ({100 * cost.share:.0f} % of the "
            f"range){noise}"
        )
    return [*lines, *at_the_edge(choice)]


def at_the_edge(choice: Choice) -> list[str]:
    """Return a warning if the recommended trial has the smallest or largest tried value of a numeric hyper-parameter.

    Tried values are those of all completed trials. A value at a limit of the key causes no warning
    (:func:`raysim.experiment.tuning.is_bound`). Without a warning, the list is empty.
    """
    taken = {} if choice.recommended is None else choice.recommended.params
    named = [
        f"{key} {value:.4g}"
        for key, value in taken.items()
        if value in edges(key, [trial.params[key] for trial in choice.trials if key in trial.params])
    ]
    return [f"caution: at the edge of the tried values: {', '.join(named)}; also try values beyond it"] if named else []
