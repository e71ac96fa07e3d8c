"""The figure of a metric's mean and variance over hospitals, by the value of a hyper-parameter."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from raysim.core.words import capitalised
from raysim.metrics.declared import ERROR_FIGURES, SCORES
from raysim.report import svg
from raysim.report.svg import PANEL, Axis, Chart, Figure

UNITS = {figure.name: figure.unit for figure in (*SCORES, *ERROR_FIGURES)}
"""Each metric's title on an axis, with its unit after a comma."""


def curve_figure(
    table: pd.DataFrame, field: str, figure: str, scale: str = "linear", names: Mapping[str, str] | None = None
) -> Figure:
    """Plot the mean and the variance of a metric over hospitals against the values of a hyper-parameter.

    ``table`` has the columns ``line`` (the strategy), ``<field>`` (the value), ``seed``, ``mean`` and ``variance``.
    Lines are means over seeds, with a band of one standard deviation. A strategy without ``field`` has a horizontal
    line. ``scale`` is the scale of the vertical axes, ``linear`` or ``log``. ``names`` has the display name of each
    strategy in ``line``.
    """
    lines = list(dict.fromkeys(table["line"]))
    titles = {line: (names or {}).get(line, line) for line in lines}
    styles = svg.styles([(line, "global") for line in lines])
    unit = UNITS.get(figure, figure)
    word = unit.partition(",")[0]
    charts = []
    for column, label in (("mean", f"mean over hospitals: {unit}"), ("variance", f"variance over hospitals: {word}²")):
        over = {line: _over_seeds(table[table["line"] == line], field, column) for line in lines}
        ends = np.concatenate([part[["low", "high"]].to_numpy().ravel() for part in over.values()])
        # A band that includes 0 does not fit on a logarithmic axis.
        y = svg.log(label, table[column]) if scale == "log" else svg.linear(label, ends)
        x = _across(table[field], field)
        chart = Chart(
            x,
            y,
            name=f"curve-{column}",
            description=_description(over, titles, field, label),
            width=1.5 * PANEL,
            height=280,
        )
        for line in lines:
            points, style = over[line], styles[line, "global"]
            if points.index.isna().all():
                chart.line([x.low, x.high], [points["mean"].iloc[0]] * 2, style, class_="line level")
                continue
            values = points.index.to_numpy(float)
            chart.band(values, np.maximum(points["low"], y.low), np.minimum(points["high"], y.high), style)
            chart.line(values, points["mean"], style)
            chart.dots(values, points["mean"], style)
        charts.append(chart)
    seeds = table["seed"].nunique()
    caption = f"Lines are means over {seeds} seeds, bands one standard deviation." if seeds > 1 else "One seed."
    level = [line for line in lines if over[line].index.isna().all()]
    if level:
        verb = "has" if len(level) == 1 else "have"
        caption += f" Horizontal: {', '.join(titles[line] for line in level)}, which {verb} no {field} to vary."
    entries = [(titles[line], styles[line, "global"]) for line in lines]
    return svg.figure("curve", f"{capitalised(word)} by {field}", charts, caption, svg.legend(entries, lines=True))


def _over_seeds(rows: pd.DataFrame, field: str, column: str) -> pd.DataFrame:
    """Return the mean over seeds and the limits of its band, for each value of the hyper-parameter in ascending order.

    A strategy without the hyper-parameter has one row, with index NaN.
    """
    over = rows.groupby(field, dropna=False)[column].agg(["mean", "std"]).fillna({"std": 0.0}).sort_index()
    return over.assign(low=over["mean"] - over["std"], high=over["mean"] + over["std"])


def _across(values: pd.Series, field: str) -> Axis:
    tried = values.dropna()
    return svg.spaced(field, tried, whole=bool((tried % 1 == 0).all()))


def _description(over: dict[str, pd.DataFrame], titles: Mapping[str, str], field: str, label: str) -> str:
    sentences = []
    for line, points in over.items():
        each = ", ".join(
            f"{mean:.4g}" + ("" if np.isnan(value) else f" at {value:g}")
            for value, mean in zip(points.index.to_numpy(float), points["mean"], strict=True)
        )
        sentences.append(f"{titles[line]}: {each}")
    return f"{label}, by {field}. {'; '.join(sentences)}."
