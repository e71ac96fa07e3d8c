"""Sentences and figures on hospitals that took no part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from raysim.core.words import counted
from raysim.experiment.unseen.files import Found
from raysim.experiment.unseen.measured import NOBODY
from raysim.experiment.unseen.tables import AUROC, RATIO
from raysim.report import svg
from raysim.report.judgement.card import Line
from raysim.report.judgement.facts.wording import json_number
from raysim.report.naming import Key, interval, number, with_interval
from raysim.report.svg import Figure, Style

MOST = 40
"""Largest number of hospitals in a plot; with more hospitals, those with the most rows are plotted."""


def lines(found: Found) -> dict[Key, Line]:
    """Return the line of a card, by strategy and model used."""
    said = {}
    for key, of in found.summary.groupby(["strategy", "model"], sort=False):
        strategy, model = map(str, key)
        first = of[of["k"].astype(str) == str(of["k"].iloc[0])].set_index("figure")
        numbers = first[["estimate", "low", "high", "next_low", "next_high", "hospitals"]].astype(float)
        figures = {str(figure): {str(name): float(x) for name, x in row.items()} for figure, row in numbers.iterrows()}
        nobody = found.hospitals[(found.hospitals["strategy"] == strategy) & (found.hospitals["model"] == model)]
        unserved = nobody.loc[nobody["served_by"] == NOBODY, "hospital"].nunique()
        said[strategy, model] = _line(figures, unserved, _taking_part(found.differences, strategy, model))
    return said


def mean(pooled: Mapping[Any, Any], digits: int) -> str:
    """Return a figure's mean over hospitals with its interval, as text."""
    return with_interval(pooled["estimate"], pooled["low"], pooled["high"], digits)


def next_one(pooled: Mapping[Any, Any], digits: int) -> str:
    """Return a clause with the prediction interval for the next hospital; empty if unknown."""
    if not np.isfinite(pooled["next_low"]):
        return ""
    return f"; at the next one {interval(pooled['next_low'], pooled['next_high'], digits)}"


def _line(figures: Mapping[str, Mapping[str, float]], unserved: int, taking_part: str) -> Line:
    if AUROC not in figures or not np.isfinite(figures[AUROC]["estimate"]):
        text = f"It cannot serve a hospital that takes no part without labelled rows ({counted(unserved, 'hospital')})."
        if not unserved:
            text = "Too few hospitals that took no part can be judged."
        return Line("unseen", "open", text, {"unserved": unserved}, "more hospitals, or a method with one model")
    auroc = figures[AUROC]
    where = f"At {counted(int(auroc['hospitals']), 'hospital')} left out in turn AUROC is "
    text = f"{where}{mean(auroc, 3)}{next_one(auroc, 2)}.{taking_part}"
    numbers: dict[str, float | int | None] = {
        name: json_number(auroc[name]) for name in ("estimate", "low", "high", "next_low", "next_high")
    }
    if RATIO in figures and np.isfinite(figures[RATIO]["next_low"]):
        ratio = figures[RATIO]
        within = interval(ratio["next_low"], ratio["next_high"], 2)
        text += f" The next hospital may have {within} times the events expected."
        numbers |= {f"observed_over_expected_{end}": json_number(ratio[f"next_{end}"]) for end in ("low", "high")}
    return Line("unseen", "ok" if auroc["low"] > 0.5 else "warn", text, numbers, "recalibrate at a new hospital")


def _taking_part(differences: pd.DataFrame, strategy: str, model: str) -> str:
    of = differences[
        (differences["strategy"] == strategy)
        & (differences["model"] == model)
        & (differences["comparison"] == "seen less unseen")
    ]
    if of.empty or not np.isfinite(of["low"].iloc[0]):
        return ""
    each = of.iloc[0]
    within = interval(each["low"], each["high"], 3, sign=True)
    return f" Taking part changes a hospital's AUROC by {number(each['difference'], 3, sign=True)} ({within})."


def drawn(found: Found, key: Key, name: str) -> Sequence[Figure]:
    """Plot the left-out hospitals under the model ``key`` as a forest; ``name`` is the model's readable name."""
    table = found.hospitals
    if AUROC not in table:
        return []
    of = table[(table["strategy"] == key[0]) & (table["model"] == key[1]) & (table["k"] == table["k"].iloc[0])]
    of = of[of["seed"] == of["seed"].min()]
    if of.empty:
        return []
    caption = (
        f"{name} at each hospital when it was left out of training, with 95 % intervals over its patients (seed "
        f"{of['seed'].iloc[0]})."
    )
    return [*forests(of, "Hospitals that took no part", caption), *_joining(table, key, name)]


def _joining(table: pd.DataFrame, key: Key, name: str) -> Sequence[Figure]:
    """Plot the gain from labelled rows of a joining hospital: means over the hospitals that have rows for every
    step."""
    of = table[(table["strategy"] == key[0]) & (table["model"] == key[1])]
    steps = list(dict.fromkeys(of["k"].astype(str)))
    of = of.assign(
        step=of["k"].astype(str), off=np.abs(np.log(of[RATIO].where(of[RATIO] > 0))) if RATIO in of else np.nan
    )
    charts: list[svg.Chart] = []
    hospitals = 0
    for column, heading in (("log_loss", "log loss"), ("off", "risks are off by, |ln O/E|")):
        wide = of.pivot_table(index="hospital", columns="step", values=column).reindex(columns=steps).dropna()
        if len(steps) < 2 or wide.empty:
            continue
        means, hospitals = wide.mean().to_numpy(), max(hospitals, len(wide))
        chart = svg.Chart(
            svg.names("labelled rows that joined", steps),
            svg.linear(heading, means, count=4),
            name=f"joining-{column.replace('_', '-')}",
            description="; ".join(f"{step} rows: {number(each, 3)}" for step, each in zip(steps, means, strict=True)),
            width=1.2 * svg.PANEL,
        )
        chart.line(np.arange(len(steps)), means, Style(0, "circle"))
        chart.dots(np.arange(len(steps)), means, Style(0, "circle"))
        charts.append(chart)
    if not charts:
        return []
    among = f"{hospitals:,} of {counted(of['hospital'].nunique(), 'hospital')}"
    caption = f"{name} after a hospital has joined, the mean over {among} with rows for every step, on the same rows."
    return [svg.figure("joining", "What labelled rows of a newcomer buy", charts, caption)]


def forests(table: pd.DataFrame, heading: str, caption: str) -> Sequence[Figure]:
    """Return two forest plots, of AUROC and of observed over expected events, for the hospitals with the most rows."""
    of = table[table[AUROC].notna()].sort_values("rows", ascending=False).head(MOST)
    if of.empty:
        return []
    charts = [_forest(of, AUROC, "AUROC", 0.5)]
    if RATIO in of:
        charts.append(_forest(of[of[RATIO].gt(0)], RATIO, "observed over expected events", 1.0))
    return [svg.figure("unseen", heading, charts, caption)]


def _forest(of: pd.DataFrame, column: str, heading: str, rule: float) -> svg.Chart:
    ends = of[[column, f"{column}_low", f"{column}_high"]].to_numpy(float)
    names = [f"{hospital} ({rows:,})" for hospital, rows in zip(of["hospital"], of["rows"], strict=True)]
    chart = svg.Chart(
        svg.linear(heading, ends[np.isfinite(ends)], include=(rule,), count=4),
        svg.names("", names),
        name=f"unseen-{column.replace('_', '-')}",
        description="; ".join(
            f"{name} {number(value, 3)} ({interval(low, high, 3)})"
            for name, (value, low, high) in zip(names, ends, strict=True)
        ),
        width=1.35 * svg.PANEL,
        height=18.0 * len(of) + 74,
        gridlines="x",
    )
    places = np.arange(len(of))
    known = np.isfinite(ends).all(axis=1)
    chart.bars(ends[known, 1], ends[known, 2], places[known], thick=0.2, class_="bar chance")
    chart.dots(ends[:, 0], places, Style(0, "circle"), size=4.0)
    return chart
