"""The figure of a regression's coefficients: those with the strongest evidence, with two kinds of interval.

Effects are given per standard deviation of a numeric column, so that columns are comparable, and also per unit of the
column. The figure is a table on the page, and a chart in a separate file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd
from markupsafe import Markup

from raysim.engine.job import Result
from raysim.report import svg
from raysim.report.figures.forest import HIGH, WIDE, ticks
from raysim.report.naming import number
from raysim.report.svg import Axis, Chart, Figure, Style, element, joined
from raysim.report.terms import explained
from raysim.storage.coefficients import COEFFICIENTS, INTERCEPT, of_global_model

MOST = 12
"""The largest number of coefficients in the figure. Those that are largest relative to their standard errors are
shown."""

LOOK: Final = Style(0, "circle")

FIGURES = 3
"""The number of significant digits of a printed estimate."""


@dataclass(frozen=True)
class Row:
    """One coefficient. Each triple is ``(value, low, high)``: an estimate with its interval, NaN where undefined."""

    name: str
    model: tuple[float, float, float]
    """The estimate with its likelihood-based interval, which assumes that hospitals do not differ."""
    robust: tuple[float, float, float]
    """The estimate with its robust interval, which is also valid if hospitals differ."""
    unit: float
    """The effect of one unit of the column: a ratio, or a difference for a numeric label."""


def plots(results: Sequence[Result], first: Sequence[str] = ()) -> list[Figure]:
    """Plot the coefficients of one run with their intervals; empty if no run has standard errors.

    A run with a label in ``first`` is preferred; the plot of any other run is collapsed, unless ``first`` is empty.
    """
    for result, name in having(COEFFICIENTS, results, first):
        figure = of_table(of_global_model(result.folder / COEFFICIENTS), name)
        if figure is not None:
            return [replace(figure, more=bool(first) and result.label not in first)]
    return []


def having(file: str, results: Sequence[Result], first: Sequence[str]) -> Iterator[tuple[Result, str]]:
    """Iterate over the runs whose folder contains ``file``, with their names for captions.

    Runs with a label in ``first`` come first, and reference strategies last. The name of a single run is empty.
    """
    for result in sorted(results, key=lambda each: (each.label not in first, each.is_reference)):
        if (result.folder / file).is_file():
            yield result, "" if len(results) == 1 else f"{result.title or result.label}, seed {result.seed}"


def of_table(table: pd.DataFrame, name: str = "") -> Figure | None:
    """Plot the coefficients of the global model; None if no coefficient has a standard error.

    ``table`` has the columns of ``coefficients.csv``; ``name`` is the caption.
    """
    known = table[(table["feature"] != INTERCEPT) & np.isfinite(table["se"]) & (table["se"] > 0)]
    if known.empty:
        return None
    effect = str(known["effect"].iloc[0])
    z = (known["coefficient"] / known["se"]).abs().to_numpy()
    strongest = known.iloc[np.argsort(-z, kind="stable")[:MOST]]
    scaled = np.exp if effect != "difference" else np.asarray
    rows = [
        Row(
            str(row["feature"]),
            _triple(scaled(row[["coefficient", "low", "high"]].to_numpy(float))),
            _triple(scaled(row[["coefficient", "low_robust", "high_robust"]].to_numpy(float))),
            float(scaled(float(row["per_unit"]))),
        )
        for _, row in strongest.iterrows()
    ]
    robust = any(math.isfinite(row.robust[1]) for row in rows)
    ends = [end for row in rows for end in (*row.model, *row.robust)]
    axis = svg.linear("", ends, include=(0.0,), signed=True, count=3)
    if effect != "difference":
        axis = svg.log("", [*ends, 1.0], count=5)
    title = {"difference": "change of the outcome"}.get(effect, effect)
    return Figure(
        "coefficients",
        "Coefficients",
        _table(rows, axis, title, robust, name),
        _caption(len(known), robust),
        (_chart(rows, title, axis, robust),),
    )


def _triple(values: np.ndarray) -> tuple[float, float, float]:
    value, low, high = values.tolist()
    return value, low, high


def _caption(known: int, robust: bool) -> str:
    which = "All coefficients" if known <= MOST else f"The {MOST} of {known} coefficients with the strongest evidence"
    parts = [f"{which}, ordered by |z|, with 95 % intervals; coefficients.csv has all."]
    if robust:
        parts.append(
            "Lines and numbers are intervals that allow hospitals to differ; bands are likelihood intervals, which "
            "assume that they do not."
        )
    parts.append("A category or a flag is compared with its absence.")
    parts.append("Coefficients describe the model, not effects of treatments.")
    return " ".join(parts)


def _with_interval(triple: tuple[float, float, float]) -> str:
    value, low, high = (_short(end) for end in triple)
    return f"{value} ({low} to {high})" if math.isfinite(triple[1]) else value


def _short(value: float) -> str:
    """Format an estimate with at least :data:`FIGURES` significant digits. Small estimates have fewer, because there
    are at most :data:`FIGURES` decimals.
    """
    if not math.isfinite(value):
        return "undefined"
    size = math.floor(math.log10(abs(value))) if value else 0
    return number(value, min(max(FIGURES - 1 - size, 0), FIGURES))


def _table(rows: Sequence[Row], axis: Axis, title: str, robust: bool, name: str) -> Markup:
    head = element(
        "tr",
        element("th", "Column", scope="col"),
        element("th", explained(f"{title} per standard deviation"), scope="col", colspan=2),
        element("th", "per unit", scope="col"),
    )
    zero = f"--zero: {100 * axis.place(_none(axis)):.1f}%"
    body = []
    for row in rows:
        text = _with_interval(row.robust if robust else row.model)
        value, _, interval = text.partition(" ")
        limits = (element("span", f" {interval}", class_="limits"),) if interval else ()
        body.append(
            element(
                "tr",
                element("th", element("span", row.name), scope="row"),
                element("td", _mark(row, axis, robust), class_="mark", style=zero),
                element("td", value, *limits, class_="figure"),
                element("td", _short(row.unit), class_="figure"),
            )
        )
    foot = element("tr", element("td", ""), ticks(axis), element("td", ""), element("td", ""))
    caption = (element("caption", name),) if name else ()
    return element(
        "table", *caption, element("thead", head), element("tbody", *body), element("tfoot", foot), class_="forest"
    )


def _none(axis: Axis) -> float:
    """Return the value that means no effect: 1 for ratios, 0 for differences."""
    return 1.0 if axis.kind == "log" else 0.0


def _mark(row: Row, axis: Axis, robust: bool) -> Markup:
    """Draw one coefficient as an SVG image: a dot with its intervals as lines."""
    parts = []
    for triple, class_ in ((row.model, "behind" if robust else "whisker"), (row.robust, "whisker")):
        low, high = WIDE * axis.places(triple[1:])
        if math.isfinite(low) and math.isfinite(high):
            parts.append(element("path", d=f"M{low:.1f} {HIGH / 2:g}H{high:.1f}", class_=f"c{LOOK.colour} {class_}"))
    if math.isfinite(at := WIDE * axis.place(row.model[0])):
        parts.append(LOOK.marker(at, HIGH / 2, 4.5))
    return element("svg", joined(parts), viewBox=f"0 0 {WIDE:g} {HIGH:g}", aria_hidden="true")


def _chart(rows: Sequence[Row], title: str, axis: Axis, robust: bool) -> Chart:
    texts = [_with_interval(row.robust if robust else row.model) for row in rows]
    chart = Chart(
        svg.Axis(f"{title} per standard deviation", axis.low, axis.high, axis.ticks, axis.texts, axis.kind),
        svg.names("", [row.name for row in rows]),
        name="coefficients-0",
        title="Coefficients",
        description="; ".join(f"{row.name} {text}" for row, text in zip(rows, texts, strict=True)) + ".",
        width=640.0,
        height=24.0 * len(rows) + 74,
        right=150.0,
        gridlines="",
    )
    chart.rule(x=_none(axis))
    for i, (row, text) in enumerate(zip(rows, texts, strict=True)):
        chart.whiskers([row.model[1]], [row.model[2]], [i], LOOK, class_="behind" if robust else "whisker")
        chart.whiskers([row.robust[1]], [row.robust[2]], [i], LOOK)
        chart.dots([row.model[0]], [i], LOOK, size=5.0)
        chart.text(axis.high, i, text, dx=8.0)
    return chart
