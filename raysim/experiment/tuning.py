"""Tuning before a comparison: strategies are tried with each setting of a grid, and evaluated on validation rows.

A trial trains a strategy with one setting and with each of ``tune.seeds``. Its score is the headline model's mean log
loss (for numeric labels, absolute error) over validation rows and seeds. The trial with the lowest score is chosen,
never one that diverges. With ``tune.per: comparison``, all strategies use the same values: those with the lowest sum of
scores over strategies.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from raysim.config import last_steps, plugins
from raysim.config.checking import validated
from raysim.config.schema import Config
from raysim.config.sections.evaluation import EvaluationSection
from raysim.config.sections.training import TrainingSection, TuneSection
from raysim.core.errors import ConfigError, nearest
from raysim.core.words import counted
from raysim.data.federation import Federation
from raysim.engine.job import Outcome

if TYPE_CHECKING:
    from raysim.engine.job import Result
    from raysim.privacy.statement import Statement

SECTIONS = ("training", "model")
"""The sections of the configuration whose keys can be tuned."""

FILE = "tuning.csv"
"""The file with all trials and their results."""


@dataclass(frozen=True)
class GridPoint:
    """One combination of values from the tuning grid, for one strategy."""

    strategy: str
    values: Mapping[str, Any]
    """The value of each tuned key, by dotted key."""
    config: Config
    """The configuration of the trial's runs."""


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial with one seed."""

    trial: GridPoint
    figure: float
    """The trial's loss on validation rows: log loss, or mean absolute error for numeric labels; infinite if undefined.
    """
    bytes_down: int = 0
    bytes_up: int = 0
    privacy: Statement | None = None
    """The trial's privacy guarantee; None without one."""


def trials(tune: TuneSection, configs: Sequence[Config]) -> list[GridPoint]:
    """Return all trials of every strategy, in the order of the grid. ``configs`` has one configuration per strategy."""
    learners = {config.model.learner for config in configs}
    for name in tune.models:
        if name not in learners:
            raise ConfigError(
                f"tune.models.{name}: is not a model of the comparison; {nearest(name, sorted(learners))}"
            )
    listed = []
    for config in configs:
        label, grid = plugins.label(config.strategy), tune.grid(config.model.learner)
        for values in itertools.product(*grid.values()):
            setting = dict(zip(grid, values, strict=True))
            named = ", ".join(f"{_short(key)} {value}" for key, value in setting.items())
            tried = with_values(config, setting).replaced(
                strategy=last_steps.judged_before(config.strategy, "strategy").model_copy(
                    update={"label": f"{label}, {named}"}
                ),
                evaluation=EvaluationSection(every=0, loss_points=0, part="validation", groups=(), clinical=None),
            )
            listed.append(GridPoint(label, setting, tried))
    return listed


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """Return ``config`` with ``values``, whose dotted keys begin with ``training`` or ``model``."""
    of_training, of_model = ({_short(k): v for k, v in values.items() if k.startswith(f"{s}.")} for s in SECTIONS)
    given = {**config.training.model_dump(exclude_none=True), **of_training}
    config = config.replaced(training=validated(TrainingSection, given, "tune.training"))
    if not of_model:
        return config
    model = config.model.having({**config.model.options(), **of_model})
    return plugins.completed(config.replaced(model=model), ("model",))


def check(federation: Federation) -> None:
    """Raise ``ConfigError`` if no hospital has validation rows."""
    if not federation.sizes("validation").any():
        raise ConfigError(
            "tune: no hospital has validation rows, on which trials are judged; give data.split.validation a share, "
            "such as 0.1, or leave tune out"
        )


def figure(outcome: Outcome, federation: Federation) -> float:
    """Return the loss of a trial with one seed on validation rows; infinite if it is undefined.

    Hospitals whose model was not trained are left out.
    """
    name, model = "log_loss" if federation.classes else "mae", list(outcome.figures)[-1]
    columns = dict(zip(federation.task.figures, outcome.figures[model].T, strict=True))
    tested = columns["n"] > 0
    if model in outcome.untrained:
        tested &= ~outcome.untrained[model]
    if not tested.any():
        return math.inf
    mean = float(np.average(columns[name][tested], weights=columns["n"][tested]))
    return mean if math.isfinite(mean) else math.inf


def table(tune: TuneSection, tried: Sequence[TrialResult]) -> pd.DataFrame:
    """Make ``tuning.csv``, with one row per trial.

    ``validation`` is the mean validation loss over seeds; ``chosen`` says whether the strategy uses the trial's values.
    Raises ``ConfigError`` if nothing can be chosen because trials diverged.
    """
    by_trial: dict[tuple[str, str], list[TrialResult]] = {}
    for one in tried:
        by_trial.setdefault((one.trial.strategy, str(one.trial.values)), []).append(one)
    rows = []
    for (strategy, _), runs in by_trial.items():
        values = runs[0].trial.values
        figures = np.array([run.figure for run in runs])
        finite = bool(np.isfinite(figures).all())
        rows.append(
            {
                "strategy": strategy,
                **dict(values),
                "validation": float(figures.mean()) if finite else math.nan,
                "validation_std": float(figures.std(ddof=1)) if finite and len(figures) > 1 else math.nan,
                "seeds": len(runs),
                "bytes_down": sum(run.bytes_down for run in runs),
                "bytes_up": sum(run.bytes_up for run in runs),
            }
        )
    result = pd.DataFrame(rows)
    for key in _keys(result):
        if not all(key in row for row in rows):  # integers remain integers if other models lack the key
            result[key] = pd.Series([row.get(key, math.nan) for row in rows], dtype=object)
    # Every strategy has the same number of trials, in the order of its grid.
    scores = result["validation"].fillna(math.inf).to_numpy().reshape(result["strategy"].nunique(), -1)
    judged = scores if tune.per == "strategy" else np.broadcast_to(scores.sum(axis=0), scores.shape)
    best = judged.argmin(axis=1)
    for strategy, (k, row) in zip(result["strategy"].unique(), enumerate(judged), strict=True):
        if not math.isfinite(row[best[k]]):
            raise ConfigError(
                f"tune: every setting made {strategy} or another strategy diverge; list smaller learning rates"
            )
    result["chosen"] = (np.arange(scores.shape[1]) == best[:, None]).ravel()
    return result


def charge(results: Sequence[Result], tried: Sequence[TrialResult]) -> None:
    """Add the privacy loss of a strategy's trials to the guarantee of the strategy's first run."""
    by_label: dict[str, list[Statement]] = {}
    for one in tried:
        if one.privacy is not None:
            by_label.setdefault(one.trial.strategy, []).append(one.privacy)
    for result in results:
        privacy = result.outcome.privacy
        if privacy is not None and (trials := by_label.pop(result.label, None)):
            result.outcome.privacy = replace(privacy, further=(*privacy.further, *trials))


def chosen(tried: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return the chosen values of each strategy: by the strategy's label, then by dotted key."""
    taken = tried[tried["chosen"]]
    return {
        str(row["strategy"]): {key: _plain(row[key]) for key in _keys(tried) if _given(row[key])}
        for row in taken.to_dict("records")
    }


def sentence(tried: pd.DataFrame) -> str:
    """Return a sentence on the chosen values, and on the bytes that tuning exchanged."""
    keys = _keys(tried)
    taken = "; ".join(
        f"{row['strategy']} "
        + ", ".join(f"{_short(key).replace('_', ' ')} {row[key]}" for key in keys if _given(row[key]))
        for row in tried[tried["chosen"]].to_dict("records")
    )
    moved = (tried["bytes_down"].sum() + tried["bytes_up"].sum()) / 1e6
    each, edge = len(tried) // tried["strategy"].nunique(), at_the_edge(tried)
    return (
        f"Tuned on validation rows, {counted(each, 'trial')} a strategy: {taken}. Tuning exchanged a further "
        f"{moved:.3g} MB, which the bytes of the strategies do not include." + (f" Caution: {edge}." if edge else "")
    )


def at_the_edge(tried: pd.DataFrame) -> str:
    """Return a caution on chosen values that are the smallest or largest tried; empty if there are none.

    ``tried`` is the result of :func:`table`.
    """
    parts = []
    for name in _keys(tried):
        taken = tried.loc[tried["chosen"], name].dropna()
        there = int(taken.isin(edges(name, tried[name].dropna().tolist())).sum())
        if there:
            parts.append(f"{name} at the edge of the grid for {there} of {len(taken)}")
    return f"{'; '.join(parts)}: also try values beyond it" if parts else ""


def edges(name: str, tried: Sequence[Any]) -> list[float]:
    """Return the smallest and the largest of the ``tried`` values. ``name`` is the dotted key.

    Empty unless the values are numbers and at least two of them differ. A value that is the smallest or largest
    allowed, such as one epoch, is left out.

    >>> edges("training.local_epochs", [4, 1, 8]), edges("training.local_epochs", [4]), edges("model.hidden", [[8], 8])
    ([8], [], [])
    """
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in tried)
    if not numbers or len(set(tried)) < 2:
        return []
    return [end for end in (min(tried), max(tried)) if not is_bound(name, end)]


def is_bound(name: str, value: float) -> bool:
    """Return whether ``value`` is the smallest or the largest value that the key ``name`` allows.

    Zero and infinity always count as limits. Other limits of keys outside ``training`` are not known.

    >>> is_bound("training.local_epochs", 1), is_bound("training.local_epochs", 8), is_bound("strategy.mu", 0.0)
    (True, False, True)
    """
    section, _, key = name.partition(".")
    fields = TrainingSection.model_fields if section == "training" else {}
    limits = fields[key].metadata if key in fields else []
    return value in (0, math.inf) or any(getattr(limit, end, None) == value for limit in limits for end in ("ge", "le"))


def _keys(tried: pd.DataFrame) -> list[str]:
    return [str(name) for name in tried.columns if str(name).partition(".")[0] in SECTIONS]


def _short(key: str) -> str:
    return key.partition(".")[2]


def _given(value: Any) -> bool:
    """Return whether ``value`` was set in a trial; NaN marks a key that the trial's model does not have."""
    return not (isinstance(value, float) and math.isnan(value))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
