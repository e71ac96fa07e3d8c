"""Virtual time of finished runs: how long they took, and when a metric reached its target."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raysim.config.sections.system import SystemSection
from raysim.core.errors import ConfigError, nearest
from raysim.engine.job import Outcome, Result, Round
from raysim.metrics.declared import ERROR_FIGURES, SCORES
from raysim.metrics.labels import TaskKind

if TYPE_CHECKING:
    import pandas as pd


DECLARED = (*SCORES, *ERROR_FIGURES)
LARGER = (*(figure.name for figure in DECLARED if figure.larger), "accuracy_min")
SMALLER = (
    *(figure.name for figure in DECLARED if figure.larger is False),
    *("gini", "std", "size_bias_abs", "ad", "sdad", "accuracy_range", "accuracy_cv"),
)
AS_HEADLINE = ("mean_unweighted", "worst_decile", "p10")
"""Statistics of the task's main metric. Larger values are better if larger values of the main metric are better."""


@dataclass(frozen=True)
class Reached:
    """The round, virtual time and bytes at which a metric first reached its target."""

    round: int
    """The round at whose end the target was reached; 0 if never."""
    virtual_seconds: float
    """Virtual time from the run's start; NaN if the target was never reached, or without a virtual clock."""
    bytes: float
    """The bytes exchanged until the target was reached; NaN if it was never reached."""


def check_target(target: Mapping[str, float], task: TaskKind) -> None:
    """Raise ``ConfigError`` if a target is set for a metric that is not computed in each evaluated round, or for which
    neither larger nor smaller values are better.
    """
    reachable = [name for name in task.reported() if name in (*LARGER, *SMALLER, *AS_HEADLINE)]
    for name in target:
        if name not in reachable:
            raise ConfigError(f"system.target: '{name}' is not a metric to reach; {nearest(name, reachable)}")


def reached(rounds: Sequence[Round], metric: str, value: float, task: TaskKind, before: int = 0) -> Reached:
    """Return when the main model's ``metric`` first reached ``value`` in an evaluated round. ``before`` is the number
    of bytes exchanged before the first round.
    """
    larger = metric in LARGER or (metric in AS_HEADLINE and task.larger)
    for row, moved in zip(rounds, moved_by(rounds, before), strict=True):
        reported = list(row.metrics.values())[-1].get(metric, math.nan) if row.metrics else math.nan
        if reported >= value if larger else reported <= value:
            seconds = math.nan if row.virtual_seconds is None else row.virtual_seconds
            return Reached(row.round, seconds, float(moved))
    return Reached(0, math.nan, math.nan)


def moved_by(rounds: Sequence[Round], before: int) -> list[int]:
    """Return the total number of bytes exchanged by the end of each round. ``before`` is the number exchanged before
    the first round.
    """
    exchanged = [row.bytes_down + row.bytes_up if row.round > 0 else 0 for row in rounds]
    return [before + moved for moved in itertools.accumulate(exchanged)]


def figures(outcome: Outcome, section: SystemSection | None, task: TaskKind) -> dict[str, float]:
    """Return a run's virtual times for tables, by name; empty if no ``section`` for a virtual clock is configured or no
    round was run.

    The names are ``virtual_seconds`` and, for each target value of a metric, ``<metric>_target_seconds``,
    ``<metric>_target_bytes`` and ``<metric>_target_reached`` (1 or 0).
    """
    if section is None or not outcome.rounds:
        return {}
    last = outcome.rounds[-1].virtual_seconds
    timed = {"virtual_seconds": math.nan if last is None else last}
    for metric, value in section.target.items():
        when = reached(outcome.rounds, metric, value, task, outcome.setup.both)
        timed[f"{metric}_target_seconds"] = when.virtual_seconds
        timed[f"{metric}_target_bytes"] = when.bytes
        timed[f"{metric}_target_reached"] = float(when.round > 0)
    return timed


def summary(outcome: Outcome, section: SystemSection, task: TaskKind) -> dict[str, Any]:
    """Return a run's virtual time for ``summary.json``, and when each metric with a target reached its target."""
    targets = {}
    for metric, value in section.target.items():
        when = reached(outcome.rounds, metric, value, task, outcome.setup.both)
        targets[metric] = {
            "value": value,
            "round": when.round or None,
            "virtual_seconds": when.virtual_seconds,
            "bytes": int(when.bytes) if math.isfinite(when.bytes) else None,
        }
    seconds = figures(outcome, section, task).get("virtual_seconds", math.nan)
    return {
        "virtual_seconds": seconds if math.isfinite(seconds) else None,
        "asked": sum(row.asked for row in outcome.rounds),
        "rounds_without_update": sum(row.cohort_size == 0 for row in outcome.rounds),
        "targets": targets,
    }


def by_time(results: Sequence[Result], metric: str) -> pd.DataFrame:
    """Return a table with one row per strategy, model, seed and evaluated round.

    The other columns are ``virtual_seconds``, the ``bytes`` exchanged so far, and the ``value`` of ``metric``. Rounds
    without virtual time are left out.
    """
    import pandas as pd

    rows = []
    for result in results:
        rounds = result.outcome.rounds
        for row, moved in zip(rounds, moved_by(rounds, result.outcome.setup.both), strict=True):
            if row.virtual_seconds is None or not math.isfinite(row.virtual_seconds):
                continue
            for model, metrics in row.metrics.items():
                rows.append((result.label, model, result.seed, row.virtual_seconds, moved, metrics[metric]))
    return pd.DataFrame(rows, columns=["strategy", "model", "seed", "virtual_seconds", "bytes", "value"])
