"""A figure of a page: charts next to each other, with a legend and a caption.

A figure in a separate file has plain light colours, because programs that convert SVG to PDF or PNG support no CSS
variables, mixed colours or media rules.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup
from numpy.typing import ArrayLike

from raysim.report.svg.chart import Chart, short_share
from raysim.report.svg.frame import LINE, WIDTH, heading_lines
from raysim.report.svg.markup import element, joined
from raysim.report.svg.scales import fixed, names
from raysim.report.svg.styles import Style

LIGHT = {
    "ink": "#1a1c1f",
    "muted": "#55595f",
    "line": "#d5d8dc",
    "paper": "#ffffff",
    "accent": "#005a91",
    "chosen": "#e0218a",
}
"""The colours of a page in light mode."""

_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_MIX = re.compile(r"color-mix\(in srgb, (#\w{6}) (\d+)%, (#\w{6})\)")
_SERIES = re.compile(r'class="c(-?\d+)\b')


def styles(markup: str) -> str:
    """Return the style sheet that a figure needs in a file of its own. ``markup`` is the figure's SVG."""
    rules, colours = _read()
    used = sorted({int(number) for number in _SERIES.findall(markup)})
    return "\n".join(each for selector, body in rules for each in _written(selector, body, used, colours))


@functools.cache
def _read() -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Read the style sheet of charts: selectors with declarations, and colours by name."""
    text = (Path(__file__).parents[1] / "templates" / "charts.css").read_text(encoding="utf-8")
    light = text.partition("\n@media (max-width")[0]
    light = "\n".join(line for line in light.splitlines() if not line.startswith("@media"))
    found = [(selector.strip(), body.strip()) for selector, body in _RULE.findall(light)]
    (series,) = (body for selector, body in found if selector == ":root")
    colours = LIGHT | dict(re.findall(r"--(c\d+): (#\w{6})", series)) | {"c-1": LIGHT["ink"]}
    html = (":root", ".chosen", ".legend", ".panels", "figure ")
    rules = [
        (selector, body) for selector, body in found if not (selector.startswith(html) or body.startswith("--own"))
    ]
    return rules, colours


def _written(selector: str, body: str, used: Iterable[int], colours: dict[str, str]) -> list[str]:
    declared = [each.strip() for each in body.split(";") if "--units" not in each]
    body = "; ".join(filter(None, declared))
    if not body:
        return []
    if "var(--own)" not in body:
        return [f"{selector} {{ {_plain(body, colours)} }}"]
    return [
        f"{', '.join(f'{part.strip()}.c{number}' for part in selector.split(','))} {{ "
        f"{_plain(body.replace('var(--own)', colours[f'c{number}']), colours)} }}"
        for number in used
    ]


def _plain(body: str, colours: dict[str, str]) -> str:
    """Replace CSS variables and mixed colours in declarations by hexadecimal colours."""
    return _MIX.sub(_mixed, re.sub(r"var\(--([\w-]+)\)", lambda found: colours[found[1]], body))


def _mixed(found: re.Match[str]) -> str:
    share = int(found[2]) / 100
    first, second = ([int(each[i : i + 2], 16) for i in (1, 3, 5)] for each in (found[1], found[3]))
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in zip(first, second, strict=True))


PANEL = 250.0
"""The width of a chart next to others, in units of its ``viewBox``."""


@dataclass(frozen=True)
class Figure:
    """A figure: ``name`` is its id on the page, ``title`` its heading, and ``caption`` explains how to read it."""

    name: str
    title: str
    markup: Markup
    caption: str
    charts: tuple[Chart, ...] = ()
    legend: Legend | None = None
    more: bool = False
    """Whether the figure is collapsed on the page."""

    @property
    def file(self) -> str:
        """The path of the figure's separate file, relative to the folder of its page."""
        return f"plots/{self.name.replace('-', '_')}.svg"

    def tree(self) -> dict[str, str | bool]:
        """Return the fields of the figure that templates use."""
        return {
            "name": self.name,
            "title": self.title,
            "markup": str(self.markup),
            "caption": self.caption,
            "more": self.more,
        }

    def standalone(self) -> str:
        """Return the figure as one SVG document with its styles."""
        first = self.charts[0].width if len(self.charts) > 1 else np.inf
        columns = 3 if first <= 1.2 * PANEL else 2 if first <= 1.5 * PANEL else 1
        parts, top = [] if self.legend is None else [self.legend.markup()], 12.0
        if self.legend is not None:
            top += 18.0 * len(self.legend.entries)
        width, below = 0.0, top
        for k, chart in enumerate(self.charts):
            if k % columns == 0:
                top, across = below, 0.0
            place = {"x": across, "y": top, "width": chart.width, "height": chart.height}
            parts.append(element("svg", chart.markup(), **place))
            across += chart.width + 12
            width, below = max(width, across), max(below, top + chart.height + 12)
        return str(
            element(
                "svg",
                element("title", self.title),
                element("desc", self.caption),
                element("style", Markup(styles(str(joined(parts))))),
                element("rect", width="100%", height="100%", fill="white"),
                *parts,
                xmlns="http://www.w3.org/2000/svg",
                font_family="system-ui, 'DejaVu Sans', sans-serif",
                viewBox=f"0 0 {width:g} {below:g}",
                width=f"{width:g}",
                height=f"{below:g}",
            )
        )


class Legend(Markup):
    """A legend as an HTML list of names with their markers; ``entries`` and ``lines`` are the arguments of
    :func:`legend`.
    """

    entries: tuple[tuple[str, Style], ...]
    lines: bool

    def markup(self) -> Markup:
        """Return the legend as SVG, with one line for each entry."""
        parts = []
        for i, (name, style) in enumerate(self.entries):
            y = 16.0 + 18.0 * i
            sign = element("g", sign_of(style, self.lines), transform=f"translate(6 {y - 8:g})")
            parts += [sign, element("text", name, x=38.0, y=y + 4)]
        return element("g", *parts, class_="chart")


def figure(
    name: str, title: str, charts: Sequence[Chart], caption: str, legend: Markup | None = None, *, row: bool = False
) -> Figure:
    """Combine charts into a figure, next to each other if they fit.

    ``row``: whether all charts are in one row, which may scroll.
    """
    markup = joined(chart.markup() for chart in charts)
    side_by_side = len(charts) > 1 and all(chart.width <= 1.5 * PANEL for chart in charts)
    wide = any(chart.width > 1.2 * PANEL for chart in charts)
    class_ = ("panels two" if wide else "panels") if side_by_side else "panel"
    if row:
        inside = element("div", markup, class_="panels row", tabindex="0", role="region", aria_label=title)
    else:
        inside = element("div", markup, class_=class_)
    as_legend = legend if isinstance(legend, Legend) else None
    return Figure(name, title, joined([legend or Markup(""), inside]), caption, tuple(charts), as_legend)


def sign_of(style: Style, lines: bool) -> Markup:
    """Draw the marker of a legend entry; with ``lines``, a line runs through it."""
    mark = style.marker(12.0, 8.0, 4.5)
    if not lines:
        return mark
    return joined([element("path", d="M0 8H24", class_=f"c{style.colour} line", stroke_dasharray=style.dash), mark])


def legend(entries: Sequence[tuple[str, Style]], *, lines: bool = False) -> Legend:
    """Build a legend of names with their markers; with ``lines``, a line runs through each marker."""
    items = []
    for name, style in entries:
        sign = element("svg", sign_of(style, lines), viewBox="0 0 24 16", class_="sign", aria_hidden="true")
        items.append(element("li", sign, element("span", name), data_s=style.series))
    made = Legend(element("ul", *items, class_="legend"))
    made.entries, made.lines = tuple(entries), lines
    return made


def heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    values: ArrayLike,
    *,
    name: str,
    title: str = "",
    description: str,
    texts: Sequence[Sequence[str]] | None = None,
    row_title: str = "",
    column_title: str = "",
    high: float | None = None,
) -> Chart:
    """Draw a heat map of ``values``, by row and column, with values or ``texts`` in its cells.

    The lightest shade is for 0 and the darkest for ``high``, by default the largest value.
    """
    table = np.asarray(values, dtype=np.float64)
    defined = table[np.isfinite(table)]
    last = high if high is not None else float(defined.max()) if len(defined) else 1.0
    x, y = names(column_title, columns), names(row_title, rows)
    height = 26.0 * len(rows) + 60 + (LINE * len(heading_lines(title)) + 5 if title else 0) + (18 if row_title else 0)
    chart = Chart(x, y, name=name, title=title, description=description, width=WIDTH, height=height)
    for i in range(len(rows)):
        for j in range(len(columns)):
            value = float(table[i, j])
            shade = value / last if last > 0 else 0.5
            text = texts[i][j] if texts is not None else fixed(value, 2) if np.isfinite(value) else "–"
            chart.cell(i, j, 0.45 * float(short_share(shade)) + 0.05 if np.isfinite(value) else 0.0, text)
    return chart
