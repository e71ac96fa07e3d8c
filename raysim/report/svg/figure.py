"""What stands on a page: one chart or several beside each other, a legend, a caption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import ArrayLike

from raysim.report.svg.chart import WIDTH, Chart, short_share
from raysim.report.svg.markup import element, joined
from raysim.report.svg.scales import Axis, linear, names
from raysim.report.svg.styles import Style

PANEL = 250.0
"""Units of the width of one of several charts beside each other."""


@dataclass(frozen=True)
class Figure:
    """``name`` is its id on the page, ``title`` its heading, ``caption`` how it is read."""

    name: str
    title: str
    markup: Markup
    caption: str


def figure(name: str, title: str, charts: Sequence[Chart], caption: str, legend: Markup | None = None) -> Figure:
    """A figure of charts, beside each other where there is room, with a ``legend`` above them."""
    drawn = joined(chart.markup() for chart in charts)
    inside = element("div", drawn, class_="panels" if len(charts) > 1 else "panel")
    return Figure(name, title, joined([legend or Markup(""), inside]), caption)


def legend(entries: Sequence[tuple[str, Style]], *, lines: bool = False) -> Markup:
    """A list of names behind their markers, and behind a piece of their lines where figures have ``lines``."""
    items = []
    for name, style in entries:
        mark = style.marker(12.0, 8.0, 4.5)
        if lines:
            stroke = element("path", d="M0 8H24", class_=f"c{style.colour} line", stroke_dasharray=style.dash)
            mark = joined([stroke, mark])
        sign = element("svg", mark, viewBox="0 0 24 16", class_="sign", aria_hidden="true")
        items.append(element("li", sign, element("span", name)))
    return element("ul", *items, class_="legend")


def heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    values: ArrayLike,
    *,
    name: str,
    title: str = "",
    said: str,
    texts: Sequence[Sequence[str]] | None = None,
    row_title: str = "",
    column_title: str = "",
    digits: int = 2,
    low: float | None = None,
    high: float | None = None,
) -> Chart:
    """Shades of ``values [R, C]`` from ``low`` to ``high`` (their least and largest), each with its value as text."""
    table = np.asarray(values, dtype=np.float64)
    defined = table[np.isfinite(table)]
    first = low if low is not None else float(defined.min()) if len(defined) else 0.0
    last = high if high is not None else float(defined.max()) if len(defined) else 1.0
    x, y = names(column_title, columns), names(row_title, rows)
    height = 26.0 * len(rows) + 60 + (20 if title else 0) + (18 if row_title else 0)
    chart = Chart(x, y, name=name, title=title, said=said, width=WIDTH, height=height)
    for i in range(len(rows)):
        for j in range(len(columns)):
            value = float(table[i, j])
            shade = (value - first) / (last - first) if last > first else 0.5
            text = texts[i][j] if texts is not None else f"{value:.{digits}f}" if np.isfinite(value) else "–"
            chart.cell(i, j, 0.45 * float(short_share(shade)) + 0.05 if np.isfinite(value) else 0.0, text)
    return chart


def histogram(
    x: Axis, low: ArrayLike, high: ArrayLike, counts: ArrayLike, *, name: str, title: str = "", said: str, unit: str
) -> Chart:
    """Upright bars of ``counts`` between ``low`` and ``high`` edges."""
    y = linear(unit, counts, include=(0.0,), within=(0.0, np.inf), count=4, whole=True)
    chart = Chart(x, y, name=name, title=title, said=said, width=WIDTH, height=200.0, gridlines="y")
    chart.columns(low, high, counts)
    return chart
