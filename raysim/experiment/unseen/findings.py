"""Sentences and figures on hospitals that took no part in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from raysim.config.sections.evaluation import ClinicalSection
from raysim.core.words import counted
from raysim.experiment.unseen.files import Found
from raysim.experiment.unseen.joining import NOBODY
from raysim.experiment.unseen.tables import AUROC, GAINED, RATIO
from raysim.metrics.labels import TaskKind, reporting
from raysim.report import svg
from raysim.report.judgement.card import Line
from raysim.report.judgement.facts.wording import figure, json_number, percent
from raysim.report.naming import Key, interval, number, with_interval
from raysim.report.svg import PLAIN, Figure, Style
from raysim.statistics.differences.paired import Limits

ENDS = {"": "estimate", "_low": "low", "_high": "high"}
"""For each suffix of a key in ``answer.json``, the column of the summary table with the estimate or limit."""

MOST = 40
"""Largest number of hospitals in a plot; those with the most rows are plotted."""


def lines(found: Found, clinical: ClinicalSection | None) -> dict[Key, Line]:
    """Return a line on hospitals that took no part in training, for each strategy and model."""
    by_key, act_at = {}, np.nan if clinical is None else clinical.act_at
    kind = reporting(found.hospitals)
    for key, nobody in found.hospitals.groupby(["strategy", "model"], sort=False):
        strategy, model = map(str, key)
        of = _of(found.summary, (strategy, model))
        first = of[of["k"].astype(str).isin(of["k"].astype(str).head(1))]
        numbers = first.set_index("figure")[["estimate", "low", "high", "next_low", "next_high", "hospitals"]]
        figures = {
            str(figure): {str(name): float(x) for name, x in row.items()}
            for figure, row in numbers.astype(float).iterrows()
        }
        unserved = nobody.loc[nobody["served_by"] == NOBODY, "hospital"].nunique()
        taking_part = _taking_part(found.differences, strategy, model)
        by_key[strategy, model] = _line(kind, figures, unserved, taking_part, act_at)
    return by_key


def mean(pooled: Mapping[Any, Any], digits: int) -> str:
    """Return the mean of a metric over hospitals with its confidence interval, as text."""
    return with_interval(pooled["estimate"], pooled["low"], pooled["high"], digits)


def next_one(pooled: Mapping[Any, Any], digits: int) -> str:
    """Return a clause with the metric's prediction interval for a further hospital; empty if it is unknown."""
    if not np.isfinite(pooled["next_low"]):
        return ""
    return f"; at the next hospital {interval(pooled['next_low'], pooled['next_high'], digits)}"


def _line(
    kind: TaskKind, figures: Mapping[str, Mapping[str, float]], unserved: int, taking_part: str, act_at: float
) -> Line:
    if not figures:
        text = "Hospitals were left out in turn (unseen.csv), without a mean: the label has more than two classes"
        return Line("unseen", "open", f"{text}.", {"unserved": unserved}, short=text)
    if not np.isfinite(figures[kind.headline]["estimate"]):
        text = (
            f"It cannot be used without labelled rows where a hospital took no part ({counted(unserved, 'hospital')})"
        )
        if not unserved:
            text = "Too few hospitals that took no part can be judged"
        remedy = "more hospitals, or a method with one model"
        return Line("unseen", "open", f"{text}.", {"unserved": unserved}, remedy, short=text)
    level = figures[kind.headline]
    digits = kind.decimals([level["estimate"]])
    where = f"At {counted(int(level['hospitals']), 'hospital')} left out in turn {kind.title} is "
    short = f"{where}{mean(level, digits)}{next_one(level, 2 if kind.larger else digits)}"
    text = f"{short}.{taking_part}"
    numbers: dict[str, float | int | None] = {
        name: json_number(level[name]) for name in ("estimate", "low", "high", "next_low", "next_high")
    }
    if RATIO in figures and np.isfinite(figures[RATIO]["next_low"]):
        ratio = figures[RATIO]
        within = interval(ratio["next_low"], ratio["next_high"], 2)
        text += f" The next hospital may have {within} times the events expected."
        numbers |= {f"observed_over_expected_{end}": json_number(ratio[f"next_{end}"]) for end in ("low", "high")}
    gain = figures.get(f"{GAINED}_{act_at:g}", {"estimate": np.nan})
    if np.isfinite(gain["estimate"]):
        benefit, low, high = (100 * gain[end] for end in ("estimate", "low", "high"))
        gains = figure(benefit, Limits(low, high), 1, sign=True)
        text += (
            f" Acting at {percent(act_at)} there gains {gains} net true alarms per 100 patients over the better of "
            "acting on everyone and acting on nobody."
        )
        numbers |= {f"{GAINED}{end}": json_number(gain[at]) for end, at in ENDS.items()}
    if not kind.larger:
        return Line("unseen", "open", text, numbers, short=short)
    remedy = "recalibrate at a new hospital"
    return Line("unseen", "ok" if level["low"] > 0.5 else "warn", text, numbers, remedy, short=short)


def _taking_part(differences: pd.DataFrame, strategy: str, model: str) -> str:
    of = differences[
        (differences["strategy"] == strategy)
        & (differences["model"] == model)
        & (differences["comparison"] == "seen less unseen")
    ]
    if of.empty or not np.isfinite(of["low"].iloc[0]):
        return ""
    each = of.iloc[0]
    changes = figure(each["difference"], Limits(each["low"], each["high"]), sign=True)
    return f" Taking part changes a hospital's AUROC by {changes}."


def plots(found: Found, models: Mapping[Key, str], looks: Mapping[Key, Style]) -> Sequence[Figure]:
    """Plot performance at hospitals that were left out of training, and the gain from labelled rows of such hospitals.

    The forest plots show the first of ``models``, the recommended model; the gain is plotted for all ``models``.
    ``models`` maps models to their readable names, ``looks`` to their styles.
    """
    table = found.hospitals
    if f"{AUROC}_low" not in table:
        return []
    key, name = next(iter(models.items()))
    of = _of(table, key)
    of = of[(of["k"] == table["k"].iloc[0]) & (of["seed"] == of["seed"].min())]
    if of.empty:
        return []
    caption = (
        f"{name} at each hospital when it was left out of training, with 95 % intervals over its patients (seed "
        f"{of['seed'].iloc[0]}). Below them are the mean with its interval, and the prediction interval for the next "
        "hospital."
    )
    pooled = _of(found.summary, key)
    pooled = pooled[pooled["k"] == pooled["k"].iloc[0]]
    forest = forests(of, pooled, "Hospitals that took no part", caption, looks.get(key, PLAIN))
    return [*forest, *_joining(table, models, looks)]


def _of(table: pd.DataFrame, key: Key) -> pd.DataFrame:
    return table[(table["strategy"] == key[0]) & (table["model"] == key[1])]


def _joining(table: pd.DataFrame, models: Mapping[Key, str], styles: Mapping[Key, Style]) -> Sequence[Figure]:
    """Plot how performance at a new hospital improves with the number of its labelled rows."""
    steps = list(dict.fromkeys(table["k"].astype(str)))
    table = table.assign(
        step=table["k"].astype(str),
        off=np.abs(np.log(table[RATIO].where(table[RATIO] > 0))) if RATIO in table else np.nan,
    )
    charts: list[svg.Chart] = []
    hospitals, looks = 0, {name: styles.get(key, PLAIN) for key, name in models.items()}
    for column, heading in (("log_loss", "log loss"), ("off", "miscalibration, |ln O/E|")):
        means, complete = _means(table, models, column, steps)
        if len(steps) < 2 or not complete:
            continue
        hospitals = max(hospitals, complete)
        chart = svg.Chart(
            svg.names("labelled rows that joined", steps),
            svg.linear(heading, np.concatenate([each.to_numpy() for each in means.values()]), count=4),
            name=f"joining-{column.replace('_', '-')}",
            description=". ".join(
                f"{name}: " + "; ".join(f"{step} rows: {number(value, 3)}" for step, value in each.items())
                for name, each in means.items()
            ),
            width=1.2 * svg.PANEL,
        )
        for name, each in means.items():
            at = np.array([steps.index(str(step)) for step in each.index])
            chart.line(at, each.to_numpy(), looks[name])
            chart.dots(at, each.to_numpy(), looks[name])
        charts.append(chart)
    if not charts:
        return []
    among = f"{hospitals:,} of {counted(table['hospital'].nunique(), 'hospital')}"
    caption = (
        f"{' and '.join(models.values())} after a hospital has joined with labelled rows. Means are over {among} that "
        "have enough rows for every step; all steps are judged on the same rows."
    )
    legend = svg.legend(list(looks.items()), lines=True) if len(models) > 1 else None
    return [svg.figure("joining", "Benefit of labelled rows at a new hospital", charts, caption, legend)]


def _means(
    table: pd.DataFrame, ways: Mapping[Key, str], column: str, steps: Sequence[str]
) -> tuple[dict[str, pd.Series], int]:
    """Return the means of ``column`` over hospitals, by model and number of labelled rows. Also return the number of
    these hospitals.

    ``ways`` maps models to their names, and ``steps`` lists the numbers of labelled rows. Steps without any value are
    left out. Means are over the hospitals at which every model has a value for each remaining step.
    """
    wide = {}
    for key, name in ways.items():
        by_step = (
            _of(table, key).pivot_table(index="hospital", columns="step", values=column).reindex(columns=list(steps))
        )
        wide[name] = by_step.dropna(axis=1, how="all").dropna()
    complete = set.intersection(*(set(each.index) for each in wide.values()))
    return {name: each.loc[sorted(complete)].mean() for name, each in wide.items()}, len(complete)


def forests(
    table: pd.DataFrame, summary: pd.DataFrame, heading: str, caption: str, look: Style = PLAIN
) -> Sequence[Figure]:
    """Return one figure with forest plots of AUROC and, if known, of observed over expected events. The result is
    empty if AUROC is undefined at every hospital.

    The plots also show the mean over hospitals and the prediction interval for a further hospital, from ``summary``.
    ``look`` is the style of the model.
    """
    of = table[table[AUROC].notna()].sort_values("rows", ascending=False).head(MOST)
    if of.empty:
        return []
    pooled = summary.set_index("figure")
    charts = [_forest(of, AUROC, "AUROC", 0.5, pooled, look)]
    if RATIO in of:
        charts.append(_forest(of[of[RATIO].gt(0)], RATIO, "observed over expected events", 1.0, pooled, look))
    return [svg.figure("unseen", heading, charts, caption)]


def _forest(of: pd.DataFrame, column: str, heading: str, rule: float, pooled: pd.DataFrame, look: Style) -> svg.Chart:
    names = [f"{hospital} ({rows:,})" for hospital, rows in zip(of["hospital"], of["rows"], strict=True)]
    ends = of[[column, f"{column}_low", f"{column}_high"]].to_numpy(float)
    beyond = pooled.loc[column, ["next_low", "next_high"]].to_numpy(float)
    below = {
        "these hospitals": pooled.loc[column, ["estimate", "low", "high"]].to_numpy(float),
        "the next hospital": np.append(np.nan, beyond),
    }
    known = {name: each for name, each in below.items() if np.isfinite(each[1:]).all()}
    names, ends = [*names, *known], np.vstack([ends, *known.values()])
    chart = svg.Chart(
        svg.linear(heading, ends[np.isfinite(ends)], include=(rule,), count=4),
        svg.names("", names),
        name=f"unseen-{column.replace('_', '-')}",
        description="; ".join(
            f"{name} {with_interval(value, low, high, 3) if np.isfinite(value) else interval(low, high, 3)}"
            for name, (value, low, high) in zip(names, ends, strict=True)
        ),
        width=1.35 * svg.PANEL,
        height=18.0 * len(names) + 74,
        gridlines="x",
    )
    places = np.arange(len(names))
    finite, own = np.isfinite(ends[:, 1:]).all(axis=1), places < len(of)
    dots = np.isfinite(ends[:, 0])
    chart.bars(ends[finite, 1], ends[finite, 2], places[finite], thick=0.2, class_="bar chance")
    for which, style in ((own, look), (~own, replace(look, shape="square"))):
        chart.dots(ends[which & dots, 0], places[which & dots], style, size=4.0)
    return chart
