"""Figures on how a model uses columns: permutation importance, and the mean prediction at each value of a column."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from raysim.core import csv_files
from raysim.engine.job import Result
from raysim.metrics.labels import TaskKind
from raysim.report import svg
from raysim.report.figures.coefficients import having
from raysim.report.naming import with_interval
from raysim.report.svg import Chart, Figure, Style
from raysim.storage.coefficients import DEPENDENCE, IMPORTANCE

MOST = 12
"""The largest number of columns in the importance figure."""

LOOK: Final = Style(0, "circle")


def plots(results: Sequence[Result], first: Sequence[str] = ()) -> list[Figure]:
    """Return the importance figures of the first run that has any; runs with a label in ``first`` come first."""
    for result, name in having(IMPORTANCE, results, first):
        task, begin = result.federation.task, f"{name}: " if name else ""
        curves = _read(result.folder / DEPENDENCE, "column", "kind", "value")
        return [
            _importance(_read(result.folder / IMPORTANCE, "column"), task, begin),
            *([] if curves.empty else [_dependence(curves, task, begin)]),
        ]
    return []


def _read(path: Path, *names: str) -> pd.DataFrame:
    return csv_files.read_csv(path, dtype=dict.fromkeys(names, str), keep_default_na=False, na_values=[""])


def _importance(table: pd.DataFrame, task: TaskKind, model: str) -> Figure:
    rows = table.head(MOST)
    values, low, high = (rows[name].to_numpy(float) for name in ("importance", "low", "high"))
    digits = task.decimals(values.tolist())
    texts = [with_interval(*row, digits, sign=True) for row in zip(values, low, high, strict=True)]
    what = f"fall of the {task.title}" if task.larger else f"rise of the {task.title}"
    chart = Chart(
        svg.linear(f"{what} without the column", [*values, *low, *high], include=(0.0,), signed=True, count=4),
        svg.names("", list(rows["column"])),
        name="importance-0",
        title="Importance",
        description="; ".join(f"{name} {text}" for name, text in zip(rows["column"], texts, strict=True)) + ".",
        width=640.0,
        height=24.0 * len(rows) + 74,
        right=190.0,
        gridlines="",
    )
    chart.rule(x=0.0)
    for i, text in enumerate(texts):
        chart.whiskers([low[i]], [high[i]], [i], LOOK)
        chart.dots([values[i]], [i], LOOK, size=5.0)
        chart.text(chart.x.high, i, text, dx=8.0)
    which = "All columns" if len(table) <= MOST else f"The {MOST} most important of {len(table)} columns"
    caption = (
        f"{model}{which}: how much worse the model is if a column is permuted within each hospital, with 95 % "
        f"intervals over hospitals. Correlated columns share their importance. {IMPORTANCE} has all columns."
    )
    return svg.figure("importance", "Importance of columns", [chart], caption)


def _dependence(table: pd.DataFrame, task: TaskKind, model: str) -> Figure:
    means = table["mean"].to_numpy(float)
    title = "mean risk" if task.larger else "mean prediction"
    charts = []
    for k, (name, of) in enumerate(table.groupby("column", sort=False)):
        numeric = bool((of["kind"] == "number").all())
        numbers = of["value"].astype(float).to_numpy() if numeric else np.arange(len(of))
        heights, texts = of["mean"].to_numpy(float), [_short(value) for value in of["value"]]
        chart = Chart(
            svg.linear("", numbers, count=3) if numeric else svg.names("", texts),
            svg.linear(title if k % 3 == 0 else "", means, count=4),
            name=f"dependence-{k}",
            title=str(name),
            description="; ".join(f"{v}: {m:.3g}" for v, m in zip(of["value"], heights, strict=True)) + ".",
            width=svg.PANEL,
            height=190.0,
            gridlines="y",
        )
        if numeric:
            chart.marked_line(numbers, heights, LOOK)
        else:
            chart.dots(numbers, heights, LOOK, size=5.0)
        charts.append(chart)
    caption = (
        f"{model}The mean prediction over all rows if the column had the same value in each: nine quantiles of a "
        f"number, or the most frequent categories. It describes the model, not an effect of treatment. The model may "
        f"not have been trained on such patients."
    )
    return svg.figure("dependence", "Predictions along the most important columns", charts, caption)


def _short(text: object) -> str:
    name = str(text)
    return name if len(name) <= 10 else f"{name[:9]}…"
