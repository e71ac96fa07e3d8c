"""Figures of runs and comparisons, from plain data frames; undefined values are left out.

``names`` and ``looks`` have the display name and the style of each strategy and model. ``numbers`` has each hospital's
number on the page, by which a selected hospital is marked.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from raysim.core.words import capitalised, counted
from raysim.metrics.labels import TaskKind, reporting
from raysim.report import svg
from raysim.report.naming import Key, number, short
from raysim.report.tables import KEYS, hospital_means

Names = Mapping[Key, str]
Looks = Mapping[Key, svg.Style]

FEW_DOTS = 40
"""If a model has more dots than this in a chart, its dots are smaller and half transparent."""


def by_size(
    hospitals: pd.DataFrame | None,
    table: pd.DataFrame,
    names: Names,
    looks: Looks,
    numbers: Mapping[str, int],
    first: Sequence[Key] = (),
) -> list[svg.Figure]:
    """Plot each hospital's main metric (AUROC or MAE), the mean over seeds, by its number of rows.

    The slope of a line is the model's size bias in ``table`` (:func:`raysim.report.tables.comparison`). If ``first``
    names models, the panels of all other models are collapsed.
    """
    if hospitals is None or hospitals.empty:
        return []
    means, kind = hospital_means(hospitals), reporting(hospitals)
    defined = means[(means["n_test"] > 0) & means[kind.headline].notna() & (means["stays"] > 0)]
    if defined.empty:
        return []
    x = svg.log("stays at the hospital", defined["stays"], count=4)
    bound = (-np.inf, 1.0) if kind.larger else (0.0, np.inf)
    y = svg.linear(f"{kind.title} at the hospital", defined[kind.headline], within=bound, count=4)
    several = "seed" in hospitals and hospitals["seed"].nunique() > 1
    few: list[svg.Chart] = []
    rest: list[svg.Chart] = []
    row_of = {(str(row["strategy"]), str(row["model"])): row for row in table.to_dict("records")}
    for k, (key, group) in enumerate(means.groupby(KEYS, sort=False)):
        model_key = (str(key[0]), str(key[1]))
        if model_key not in names:
            continue
        here = group[(group["n_test"] > 0) & group[kind.headline].notna() & (group["stays"] > 0)]
        chart = svg.Chart(
            x,
            y,
            name=f"size-{k}",
            title=names[model_key],
            description=_of_sizes(here, row_of[model_key], kind),
            width=svg.PANEL,
            height=230,
        )
        of = [numbers.get(str(name), -1) for name in here["hospital"]]
        many = len(here) > FEW_DOTS
        chart.dots(
            here["stays"],
            here[kind.headline],
            looks[model_key],
            of=of,
            size=3.0 if many else 4.5,
            class_="many" if many else None,
        )
        slope = float(row_of[model_key].get("size_bias", np.nan))
        if len(here) >= 10 and np.isfinite(slope):
            ends = np.array([here["stays"].min(), here["stays"].max()])
            middle = np.log(here["stays"].to_numpy(float)).mean()
            chart.line(ends, here[kind.headline].mean() + slope * (np.log(ends) - middle), svg.PLAIN)
        (rest if first and model_key not in first else few).append(chart)
    dot = "a hospital's mean over seeds" if several else "a hospital"
    caption = (
        f"Each dot is {dot}. The slope of a line is the size bias on these rows; without an interval it does not "
        "extend to other hospitals."
    )
    title = f"{kind.title} by hospital size"
    figures = [svg.figure("by-size", title, few, caption)] if few else []
    if rest:
        figures.append(replace(svg.figure("by-size-all", f"{title}: the other methods", rest, caption), more=True))
    return figures


def _of_sizes(here: pd.DataFrame, row: Mapping[Hashable, object], kind: TaskKind) -> str:
    values = here[kind.headline].to_numpy(float)
    if not len(values):
        return f"No hospital has a defined {kind.title}."
    digits = kind.decimals(values)
    low, high = (number(float(value), digits) for value in (values.min(), values.max()))
    slope = number(float(str(row.get("size_bias", "nan"))), digits + 1, sign=True)
    hospitals = counted(len(values), "hospital")
    return f"Scatter plot of {kind.title} against stays: {hospitals} from {low} to {high}, size bias {slope}."


def trade_offs(table: pd.DataFrame, names: Names, looks: Looks) -> list[svg.Figure]:
    """Plot pairs of fairness metrics for all models, with error bars of one standard deviation over seeds."""
    kind = reporting(table)
    digits = kind.decimals(table[kind.headline])
    axes = {
        kind.headline: f"mean {kind.title}",
        "worst_decile": f"{kind.title} of the worst tenth",
        "size_bias_abs": "size bias, absolute",
        "gini": "Gini over hospitals",
    }
    short = axes | {"worst_decile": "worst tenth", "size_bias_abs": "size bias", "gini": "Gini"}
    keys = [(str(a), str(b)) for a, b in table[KEYS].to_numpy()]
    defined = np.isfinite(table[list(axes)].to_numpy(float)).all(axis=1)
    if not defined.any():
        return []
    charts = []
    panels = (
        (kind.headline, "worst_decile"),
        ("size_bias_abs", kind.headline),
        ("size_bias_abs", "worst_decile"),
        ("gini", kind.headline),
    )
    for k, (across, up) in enumerate(panels):
        values = table.loc[defined, [across, up]].to_numpy(float)
        spread = table.loc[defined, [f"{across}_std", f"{up}_std"]].to_numpy(float)
        spread = np.nan_to_num(spread)
        points = [
            f"{names[key]} {number(x, digits)} and {number(y, digits)}"
            for key, (x, y) in zip([k for k, s in zip(keys, defined, strict=True) if s], values, strict=True)
        ]
        chart = svg.Chart(
            svg.linear(axes[across], [values[:, 0] - spread[:, 0], values[:, 0] + spread[:, 0]], count=3),
            svg.linear(axes[up], [values[:, 1] - spread[:, 1], values[:, 1] + spread[:, 1]], count=4),
            name=f"trade-{k}",
            title=f"{capitalised(short[up])} by {short[across]}",
            description=f"Scatter plot of {axes[up]} against {axes[across]}. {'; '.join(points)}.",
            width=svg.PANEL,
            height=230,
        )
        for key, (x, y), (dx, dy) in zip(
            [k for k, s in zip(keys, defined, strict=True) if s], values, spread, strict=True
        ):
            chart.whiskers([x - dx], [x + dx], [y], looks[key], class_="whisker thin")
            chart.whiskers([y - dy], [y + dy], [x], looks[key], upright=True, class_="whisker thin")
            chart.dots([x], [y], looks[key], size=5.0)
        charts.append(chart)
    more = "" if kind.larger else " For errors, lower is better."
    return [
        svg.figure(
            "trade-offs",
            "Accuracy, worst tenth, size bias and Gini",
            charts,
            "Each panel plots two figures: high is better for the mean and the worst tenth, left is better for size "
            f"bias and Gini.{more} Lines are one standard deviation over seeds. Only the intervals in the decision can "
            "demonstrate differences.",
            svg.legend([(names[key], looks[key]) for key in keys]),
        )
    ]


def curves(
    rounds: pd.DataFrame | None,
    names: Names,
    looks: Looks,
    metric: str | None = None,
    *,
    name: str = "by-round",
    title: str = "",
    axis: str = "",
    caption: str = "",
) -> list[svg.Figure]:
    """Plot a metric by round, with a band of one standard deviation over seeds.

    The list is empty if fewer than two rounds were evaluated. The default ``metric`` is the main one (AUROC or MAE).
    """
    if rounds is None:
        return []
    kind = reporting(rounds)
    metric = metric or kind.headline
    if metric not in rounds:
        return []
    evaluated = rounds if "model" in rounds else rounds.assign(model="global")
    evaluated = evaluated[np.isfinite(evaluated[metric].astype(float))]
    if evaluated["round"].nunique() < 2:  # one point for each strategy is not a curve
        return []
    title, axis = title or f"Mean {kind.title} by round", axis or f"mean {kind.title} over hospitals"
    lines = []
    for key, group in evaluated.groupby(KEYS, sort=False):
        model_key = (str(key[0]), str(key[1]))
        model_key = (
            model_key if model_key in names else next((other for other in names if other[0] == model_key[0]), model_key)
        )
        by_round = group.groupby("round")[metric].agg(["mean", "std"]).sort_index()
        lines.append(
            (model_key, by_round.index.to_numpy(float), by_round["mean"].to_numpy(), by_round["std"].to_numpy())
        )
    ends = [values[-1] for *_, values, _ in lines]
    digits = 4 if kind.larger and metric != kind.headline else kind.decimals(ends)
    description = "; ".join(
        f"{names.get(model_key, model_key[0])} ends at {number(values[-1], digits)}"
        for model_key, _, values, _ in lines
    )
    every = [np.concatenate([m - np.nan_to_num(s), m + np.nan_to_num(s)]) for *_, m, s in lines]
    chart = svg.Chart(
        svg.linear("round", evaluated["round"], margin=0.01, whole=True),
        svg.linear(axis, np.concatenate(every)),
        name=name,
        description=f"Line plot by round. {description}.",
        height=290.0,
        right=svg.ENDS,
    )
    for model_key, x, mean, std in lines:
        look = looks.get(model_key, svg.style(*model_key))
        chart.band(x, mean - std, mean + std, look)
        chart.marked_line(x, mean, look)
    several = "seed" in rounds and rounds["seed"].nunique() > 1
    entries = [
        (names.get(model_key, model_key[0]), looks.get(model_key, svg.style(*model_key))) for model_key, *_ in lines
    ]
    chart.ends([(short(name), value, look) for (name, look), value in zip(entries, ends, strict=True)])
    text = caption or f"Mean {kind.title} over hospitals after each round."
    band = " Bands are one standard deviation over seeds." if several else ""
    return [svg.figure(name, title, [chart], text + band, svg.legend(entries, lines=True))]


def from_reference(
    values: pd.DataFrame, figure: str, word: str, reference: Key, names: Names, looks: Looks
) -> list[svg.Figure]:
    """Plot each hospital's metric minus its metric under the reference model, sorted, as one line for each model.

    ``values`` has the columns ``strategy, model, hospital`` and a column with the metric, the mean over seeds.
    ``figure`` is the name of this column, and ``word`` the metric's name in text.
    """
    wide = values.pivot(index="hospital", columns=KEYS, values=figure)
    if reference not in wide:
        return []
    others: list[Key] = [key for key in names if key != reference and key in wide]
    gains = {key: np.sort((wide[key] - wide[reference]).dropna().to_numpy(float)) for key in others}
    gains = {key: gain for key, gain in gains.items() if len(gain) > 1}
    if not gains:
        return []
    name = names[reference]
    description = "; ".join(
        f"{names[key]}: {np.mean(gain > 0):.0%} of hospitals above it" for key, gain in gains.items()
    )
    chart = svg.Chart(
        svg.share("share of hospitals, from the least to the most gain"),
        svg.linear(f"{word} minus that of {name}", np.concatenate(list(gains.values())), include=(0.0,), signed=True),
        name=f"{figure}-from-reference",
        description=f"Line plot of sorted differences. {description}.",
        right=svg.ENDS,
    )
    chart.rule(y=0.0)
    for key, gain in gains.items():
        chart.marked_line((np.arange(len(gain)) + 0.5) / len(gain), gain, looks[key])
    chart.ends([(short(names[key]), gain[-1], looks[key]) for key, gain in gains.items()])
    return [
        svg.figure(
            f"{figure}-from-reference",
            f"{capitalised(word)} at hospitals, against {name}",
            [chart],
            f"Each line orders hospitals by their own difference. Where it is above 0, hospitals have more {word} than "
            f"with {name}.",
            svg.legend([(names[key], looks[key]) for key in gains], lines=True),
        )
    ]


def styles(table: pd.DataFrame) -> dict[Key, svg.Style]:
    """Return the style of each strategy and model in ``table``."""
    return svg.styles([(str(a), str(b)) for a, b in table[KEYS].to_numpy()])
