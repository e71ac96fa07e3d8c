"""The text of a sweep's page, and the data of every trial."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from raysim.core import words
from raysim.core.package import versions
from raysim.core.words import capitalised
from raysim.report import svg
from raysim.report.pages.common import setting
from raysim.report.pages.contents import Cell, Row
from raysim.report.pages.rendering import Page
from raysim.report.pages.section import Section, Sheet, included
from raysim.tune.answer import Tested, falls
from raysim.tune.choice import Choice, at_the_edge, headline, title
from raysim.tune.page.trial_charts import figures, student
from raysim.tune.pareto import signed
from raysim.tune.spaces import Space

MOST_ROWS = 60
"""The largest number of trials in the page's table."""


@dataclass(frozen=True)
class Setting:
    """Facts about a sweep and its data for its page."""

    data: str
    """A digest of the first seed's data."""
    hospitals: int
    rows: int | None
    """The number of rows; None if hospitals' sizes are hidden."""
    seeds: Sequence[int]
    config: str
    mlflow: str
    """The address of the trials in MLflow, or the command that opens them; empty if there is none to show."""
    runs: Mapping[int, str]
    """For each seed, the path of the page about the run of the recommended trial on test rows."""
    warning: str
    """A warning if the rarer class has too few validation rows, else an empty text."""
    privacy: str = ""
    """The joint privacy guarantee of all runs of the sweep; empty if there is none."""
    notes: Sequence[str] = ()
    command: str = "raysim sweep sweep.yaml"

    @property
    def versions(self) -> dict[str, str]:
        """Return the versions of the packages that affect the results."""
        return versions("ray", "optuna", "numpy")


def sweep_page(
    name: str, choice: Choice, space: Space, setting: Setting, tested: Tested | None, counts: Mapping[str, int]
) -> Page:
    """Build the page of the sweep ``name``.

    - ``tested``: the metrics of the recommended trial on test rows; None if this trial was not evaluated on test rows.
    - ``counts``: the number of trials by status, such as ``completed``, and the planned number in ``total``.
    """
    keys = [dimension.key for dimension in space]
    recommended = choice.recommended
    return Page(
        SHEET,
        {
            "title": name,
            "lead": headline(choice),
            "gives_up": gives_up(choice),
            "cautions": [*at_the_edge(choice), *falls(choice, tested)],
            "warning": setting.warning,
            "privacy": setting.privacy,
            "counted": counted(choice, counts),
            "recommended": recommended,
            "params": []
            if recommended is None
            else [(key, _value_text(value)) for key, value in recommended.params.items()],
            "columns": ["validation rows", "test rows", "best of the set, validation rows"],
            "objectives": objective_rows(choice, tested),
            "several": len(setting.seeds) > 1,
            "tested": tested is not None,
            "figures": figures(choice, space),
            "trial_columns": [*(title(choice, j) for j in range(len(choice.sweep.names))), *keys],
            "trials": trial_rows(choice, keys),
            "unlisted": max(len(choice.trials) - MOST_ROWS, 0),
            "data": svg.json_block("trials", trial_data(choice, keys)),
            "numbers": [(i, trial.number) for i, trial in enumerate(choice.trials)],
            "provenance": setting,
            "facts": [
                ("Data", setting.data),
                ("Hospitals", f"{setting.hospitals:,}"),
                ("Rows", "released with noise" if setting.rows is None else f"{setting.rows:,}"),
                ("Seeds", ", ".join(map(str, setting.seeds))),
                ("Versions", ", ".join(f"{package} {of}" for package, of in setting.versions.items())),
            ],
            "links": [("MLflow", setting.mlflow) if setting.mlflow.startswith("http") else (setting.mlflow, "")]
            if setting.mlflow
            else [],
        },
    )


def gives_up(choice: Choice) -> list[str]:
    """Return a sentence per objective on how far the recommended trial is from the best trial in this objective.

    The list is empty without a recommended trial.
    """
    if choice.knee is None or choice.recommended is None:
        return []
    sentences = []
    for j, (name, cost) in enumerate(zip(choice.sweep.names, choice.knee.costs, strict=True)):
        mean, spread = choice.recommended.figures[name]
        words = title(choice, j)
        head = f"{capitalised(words)}: {mean:.4g}."
        if cost.gap == 0:
            sentences.append(f"{head} No trial of the Pareto set is better.")
            continue
        best = choice.trials[cost.best].number
        share = f"{100 * cost.share:.0f} % of the range of the Pareto set"
        sentence = f"{head} It is {cost.gap:.3g} worse than trial {best}, {share}."
        if math.isfinite(spread):
            side = "less" if cost.gap < spread else "more"
            sentence += f" That is {side} than its standard deviation over seeds ({spread:.3g})."
        sentences.append(sentence)
    return sentences


def counted(choice: Choice, counts: Mapping[str, int]) -> str:
    """Return a text on how many trials completed, were stopped by the scheduler, failed, and are left."""
    ended = sum(counts[state] for state in ("completed", "stopped", "failed"))
    text = f"{words.counted(counts['completed'], 'trial')} completed"
    text += f", {counts['stopped']} stopped by the scheduler" if counts["stopped"] else ""
    text += f", {counts['failed']} failed" if counts["failed"] else ""
    left = counts["total"] - ended
    return f"{text}; {left} of {counts['total']} are still to run." if left else f"{text}."


def objective_rows(choice: Choice, tested: Tested | None) -> list[Row]:
    """Return a table row per objective: the recommended trial's values on validation and test rows, and the best trial
    of the Pareto set.
    """
    trial, knee = choice.recommended, choice.knee
    if trial is None or knee is None:
        return []
    seeds, rows = len(trial.finals), []
    for j, name in enumerate(choice.sweep.names):
        best = choice.trials[knee.costs[j].best]
        rows.append(
            Row(
                f"{title(choice, j)} ({'more' if choice.sweep.larger[j] else 'less'} is better)",
                [
                    _cell(trial.figures[name], seeds),
                    _cell(tested.get(name, (math.nan, math.nan)) if tested else (math.nan, math.nan), seeds),
                    Cell(f"{best.figures[name][0]:.4g}", "", False, f"trial {best.number}"),
                ],
            )
        )
    return rows


def trial_rows(choice: Choice, keys: Sequence[str]) -> list[Row]:
    """Return a table row per completed trial, at most :data:`MOST_ROWS`; the columns are the objectives and the
    searched ``keys``.

    The recommended trial is first, then the Pareto set, then other trials. The Pareto set and the other trials are each
    sorted by the first objective, the best first.
    """
    best = -1 if choice.knee is None else choice.knee.index
    first = np.nan_to_num(signed(choice.values, choice.sweep.larger)[:, 0], nan=-np.inf)
    order = np.lexsort((-first, ~choice.front, np.arange(len(first)) != best))
    rows = []
    for i in order[:MOST_ROWS].tolist():
        trial, place = choice.trials[i], ""
        if choice.front[i]:
            place = ", recommended" if i == best else ", Pareto set"
        cells = [Cell("–" if math.isnan(value) else f"{value:.4g}", "") for value in choice.values[i]]
        cells += [Cell(_value_text(trial.params[key]) if key in trial.params else "–", "") for key in keys]
        rows.append(Row(f"trial {trial.number}{place}", cells))
    return rows


def trial_data(choice: Choice, keys: Sequence[str]) -> list[dict[str, Any]]:
    """Return the data of each completed trial for the page's script. Points of charts refer to trials by their index in
    this list."""
    trials = []
    for i, trial in enumerate(choice.trials):
        values = {
            title(choice, j): "undefined" if math.isnan(value) else f"{value:.4g}"
            for j, value in enumerate(choice.values[i].tolist())
        }
        params = {key: _value_text(trial.params[key]) for key in keys if key in trial.params}
        trials.append({"trial": trial.number, "front": bool(choice.front[i]), "figures": values, "params": params})
    return trials


def _cell(figure: tuple[float, float], seeds: int) -> Cell:
    mean, spread = figure
    if not math.isfinite(mean):
        return Cell("–", "")
    low, high = student(mean, spread, seeds)
    return Cell(f"{mean:.4g}", "", False, f"{low:.4g} to {high:.4g}" if math.isfinite(low) else "")


def _value_text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


SHEET = Sheet(
    "sweep",
    "Search for hyper-parameters",
    (
        Section("answer", "The answer", included("sweep")),
        Section("pictures", "Every trial", included("sweep_pictures"), visible=lambda values: values["figures"]),
        Section("trials-table", "Trials", included("sweep_trials"), visible=lambda values: values["trials"]),
        setting("What was run"),
    ),
    "{{ data }}",
    wide=True,
    scripts=("trials.js", "figures.js"),
)
