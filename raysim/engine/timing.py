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
"""Metrics of which more is better; of which less is better; and those that follow the headline metric."""


@dataclass(frozen=True)
class Reached:
    """When a target was first reached."""

    round: int
    """The round at whose end it was; 0 where it never was."""
    virtual_seconds: float
    """Virtual time from the run's beginning; NaN where it never was."""
    bytes: float
    """Bytes that hospitals had exchanged by then; NaN where it never was."""


def check_target(target: Mapping[str, float], task: TaskKind) -> None:
    """Raise ``ConfigError`` for a metric that rounds do not report, or of which neither more nor less is better."""
    reachable = [name for name in task.reported() if name in (*LARGER, *SMALLER, *AS_HEADLINE)]
    for name in target:
        if name not in reachable:
            raise ConfigError(f"system.target: '{name}' is no metric to reach; {nearest(name, reachable)}")


def reached(rounds: Sequence[Round], metric: str, value: float, task: TaskKind, before: int = 0) -> Reached:
    """When the headline model reached ``value`` of a metric, among evaluated rounds. ``before``: set-up bytes."""
    larger = metric in LARGER or (metric in AS_HEADLINE and task.larger)
    for row, moved in zip(rounds, moved_by(rounds, before), strict=True):
        reported = list(row.metrics.values())[-1].get(metric, math.nan) if row.metrics else math.nan
        if reported >= value if larger else reported <= value:
            seconds = math.nan if row.virtual_seconds is None else row.virtual_seconds
            return Reached(row.round, seconds, float(moved))
    return Reached(0, math.nan, math.nan)


def moved_by(rounds: Sequence[Round], before: int) -> list[int]:
    """Bytes that hospitals had exchanged by the end of each round, ``before`` the first one included."""
    exchanged = [row.bytes_down + row.bytes_up if row.round > 0 else 0 for row in rounds]
    return [before + moved for moved in itertools.accumulate(exchanged)]


def figures(outcome: Outcome, section: SystemSection | None, task: TaskKind) -> dict[str, float]:
    """A run's virtual time by name, for tables: ``virtual_seconds``, and ``<metric>_target_seconds``,
    ``<metric>_target_bytes`` and ``<metric>_target_reached`` (1 or 0) for each target. Nothing without ``system``.
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
    """A run's virtual time and targets for ``summary.json``; undefined values are None."""
    targets = {}
    for metric, value in section.target.items():
        when = reached(outcome.rounds, metric, value, task, outcome.setup.both)
        targets[metric] = {
            "value": value,
            "round": when.round or None,
            "virtual_seconds": when.virtual_seconds if math.isfinite(when.virtual_seconds) else None,
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
    """A row a strategy, model served, seed and evaluated round: ``virtual_seconds``, ``bytes`` until then, ``value`` of
    a metric. Runs whose time is undefined have none.
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
