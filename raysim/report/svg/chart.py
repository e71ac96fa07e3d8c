"""A chart: shapes in a frame of two axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from raysim.report.svg.frame import LETTER, LINE, Frame
from raysim.report.svg.markup import element
from raysim.report.svg.styles import PLAIN, Style

ENDS = 185.0
"""The width that the names of lines need on the right of a chart, in units of its ``viewBox``."""

MARKED = 6
"""The largest number of markers on a line."""


class Chart(Frame):
    """A chart: shapes on two axes, drawn in the order in which they are added.

    Values that an axis cannot show, such as NaN, are left out. In all methods, ``of`` gives the index of each shape's
    hospital. A script uses it to mark the selected hospital.
    """

    def dots(
        self,
        x: ArrayLike,
        y: ArrayLike,
        style: Style = PLAIN,
        *,
        of: Sequence[int] | None = None,
        size: float = 4.0,
        class_: str | None = None,
    ) -> None:
        """Draw a marker at each point."""
        for i, (a, b) in enumerate(zip(self.across(x), self.up(y), strict=True)):
            if math.isfinite(a) and math.isfinite(b):
                number = None if of is None else of[i]
                self._marks.append(style.marker(a, b, size, class_=class_, data_h=number, data_s=style.series))

    def whiskers(
        self,
        low: ArrayLike,
        high: ArrayLike,
        at: ArrayLike,
        style: Style = PLAIN,
        *,
        upright: bool = False,
        of: Sequence[int] | None = None,
        class_: str = "whisker",
    ) -> None:
        """Draw lines from ``low`` to ``high``, cut at the axis limits. ``at`` has their positions on the other axis.

        Lines are vertical if ``upright``, else horizontal.
        """
        scale, other = (self.up, self.across) if upright else (self.across, self.up)
        axis = self.y if upright else self.x
        ends = [scale(np.clip(np.asarray(end, dtype=np.float64), axis.low, axis.high)) for end in (low, high)]
        for i, (a, b, p) in enumerate(zip(*ends, other(at), strict=True)):
            if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(p)):
                continue
            number = None if of is None else of[i]
            d = f"M{p:.1f} {a:.1f}V{b:.1f}" if upright else f"M{a:.1f} {p:.1f}H{b:.1f}"
            self._marks.append(
                element("path", d=d, class_=f"c{style.colour} {class_}", data_h=number, data_s=style.series)
            )

    def line(
        self,
        x: ArrayLike,
        y: ArrayLike,
        style: Style = PLAIN,
        *,
        steps: bool = False,
        of: int | None = None,
        class_: str = "line",
    ) -> None:
        """Draw a line through points.

        ``steps``: whether each value is drawn as constant until the next point.
        """
        points = [(a, b) for a, b in zip(self.across(x), self.up(y), strict=True) if np.isfinite([a, b]).all()]
        if points:
            d = _path(points, steps)
            classes = f"c{style.colour} {class_}"
            attributes = {"class_": classes, "stroke_dasharray": style.dash, "data_h": of, "data_s": style.series}
            self._marks.append(element("path", d=d, **attributes))

    def marked_line(self, x: ArrayLike, y: ArrayLike, style: Style = PLAIN, *, steps: bool = False) -> None:
        """Draw a line with markers, at most :data:`MARKED`."""
        self.line(x, y, style, steps=steps)
        points = np.column_stack([np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)])
        points = points[np.isfinite(points).all(axis=1)]
        at = np.unique(np.linspace(len(points) - 1, 0, min(MARKED, len(points))).round().astype(int))
        self.dots(points[at, 0], points[at, 1], style)

    def band(self, x: ArrayLike, low: ArrayLike, high: ArrayLike, style: Style = PLAIN, *, steps: bool = False) -> None:
        """Draw an area between the lines ``low`` and ``high``, in the colour of ``style``.

        ``steps``: whether each value is drawn as constant until the next point.
        """
        places = [(a, b, c) for a, b, c in zip(self.across(x), self.up(low), self.up(high), strict=True)]
        places = [place for place in places if np.isfinite(place).all()]
        if places:
            above = _path([(a, c) for a, _, c in places], steps)
            below = _path([(a, b) for a, b, _ in places], steps)
            back = "L" + "L".join(reversed(below[1:].split("L")))
            self._marks.append(
                element("path", d=f"{above}{back}Z", class_=f"c{style.colour} band", data_s=style.series)
            )

    def area(self, x: ArrayLike, low: ArrayLike, high: ArrayLike, *, shade: float) -> None:
        """Draw an area between the lines ``low`` and ``high``, with a ``shade`` from 0 to 1."""
        places = list(zip(self.across(x), self.up(low), self.up(high), strict=True))
        finite = [place for place in places if np.isfinite(place).all()]
        if finite:
            outline = [(a, c) for a, _, c in finite] + [(a, b) for a, b, _ in reversed(finite)]
            d = f"{_path(outline, steps=False)}Z"
            self._marks.append(element("path", d=d, class_="cell edged", fill_opacity=short_share(shade)))

    def bars(
        self,
        low: ArrayLike,
        high: ArrayLike,
        at: ArrayLike,
        style: Style = PLAIN,
        *,
        upright: bool = False,
        thick: float = 0.7,
        class_: str = "bar",
    ) -> None:
        """Draw bars from ``low`` to ``high``. ``at`` has their positions on the other axis.

        ``thick`` is the thickness of a bar in units of the other axis. Bars are vertical if ``upright``, else
        horizontal.
        """
        scale, other = (self.up, self.across) if upright else (self.across, self.up)
        step = abs(float(other([1.0])[0] - other([0.0])[0])) * thick
        for a, b, p in zip(scale(low), scale(high), other(at), strict=True):
            if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(p)):
                continue
            first, long = float(min(a, b)), float(abs(b - a))
            box = (
                {"x": float(p) - step / 2, "y": first, "width": step, "height": long}
                if upright
                else {"x": first, "y": float(p) - step / 2, "width": long, "height": step}
            )
            self._marks.append(element("rect", **box, class_=f"c{style.colour} {class_}", data_s=style.series))

    def rule(self, *, x: float | None = None, y: float | None = None, text: str = "", dashed: bool = False) -> None:
        """Draw a straight line through the whole chart at the value ``x`` or ``y``, with a ``text`` at its end."""
        kind = "rule dashed" if dashed else "rule"
        if x is not None and math.isfinite(x):
            at = float(self.across([x])[0])
            self._marks.append(element("path", d=f"M{at:.1f} {self._top:.1f}V{self._bottom:.1f}", class_=kind))
            if text:
                self._marks.append(element("text", text, x=at + 4, y=self._top + 10, class_="note"))
        if y is not None and math.isfinite(y):
            at = float(self.up([y])[0])
            self._marks.append(element("path", d=f"M{self._left:.1f} {at:.1f}H{self._right:.1f}", class_=kind))
            if text:
                self._marks.append(element("text", text, x=self._right - 2, y=at - 4, class_="note", text_anchor="end"))

    def text(self, x: float, y: float, text: str, *, anchor: str = "start", dx: float = 0.0, dy: float = 4.0) -> None:
        """Write a text at a point of the axes, shifted by ``dx`` and ``dy``; centred text is kept inside the chart."""
        a, b = float(self.across([x])[0]), float(self.up([y])[0])
        if anchor == "middle":
            half_width = self._letter * len(text) / 2
            a = min(max(a, half_width), self.width - half_width)
        if math.isfinite(a) and math.isfinite(b):
            self._marks.append(element("text", text, x=a + dx, y=b + dy, class_="note", text_anchor=anchor))

    def ends(self, lines: Sequence[tuple[str, float, Style]]) -> None:
        """Write the name of each line on the right of the chart, at the height of its last value.

        The chart needs ``right=ENDS`` units of space for the names.
        """
        heights = spread(self.up([value for _, value, _ in lines]).tolist(), LINE - 1, self._top, self._bottom)
        room = int((self.width - self._right - 8) / LETTER)
        for (name, _, style), y in zip(lines, heights, strict=True):
            cut = name if len(name) <= room else f"{name[: room - 1]}…"
            attributes = {"class_": f"c{style.colour} end", "data_s": style.series}
            self._marks.append(element("text", cut, x=self._right + 6, y=y + 4, **attributes))

    def cell(self, row: int, column: int, shade: float, text: str) -> None:
        """Draw a cell of a heat map; ``shade`` is from 0 to 1."""
        x, y = self.across([column - 0.5, column + 0.5]), self.up([row - 0.5, row + 0.5])
        (left, right), (top, bottom) = x.tolist(), y.tolist()
        box = {"x": left + 0.5, "y": top + 0.5, "width": right - left - 1, "height": bottom - top - 1}
        self._marks.append(element("rect", **box, class_="cell", fill_opacity=short_share(shade)))
        self._marks.append(
            element("text", text, x=float(x.mean()), y=float(y.mean()) + 4, class_="value", text_anchor="middle")
        )


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move ``positions`` within ``low..high``, as little as possible, so that neighbours are ``gap`` or more apart.

    If there are too many positions for ``gap``, they are spaced evenly.
    """
    gap = min(gap, (high - low) / max(len(positions) - 1, 1))
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    blocks: list[tuple[float, int]] = []  # neighbours that touch: their centre and number
    for i in order:
        blocks.append((_within(positions[i], 1, gap, low, high), 1))
        while len(blocks) > 1 and blocks[-1][0] - blocks[-2][0] < gap * (blocks[-1][1] + blocks[-2][1]) / 2 - 1e-9:
            (upper, m), (lower, k) = blocks.pop(), blocks.pop()
            blocks.append((_within((upper * m + lower * k) / (m + k), m + k, gap, low, high), m + k))
    moved = [centre + gap * (k - (members - 1) / 2) for centre, members in blocks for k in range(members)]
    out = [0.0] * len(positions)
    for i, position in zip(order, moved, strict=True):
        out[i] = position
    return out


def short_share(shade: float) -> str:
    """Format a share with two decimals, limited to 0 to 1; an undefined share is 0.

    >>> short_share(0.256), short_share(float("nan"))
    ('0.26', '0.00')
    """
    return f"{min(max(shade, 0.0), 1.0) if math.isfinite(shade) else 0.0:.2f}"


def _within(centre: float, members: int, gap: float, low: float, high: float) -> float:
    half_width = gap * (members - 1) / 2
    return min(max(centre, low + half_width), high - half_width)


def _path(points: Sequence[tuple[float, float]], steps: bool) -> str:
    if steps:
        corners = [points[0]]
        for (_, before), (x, y) in itertools.pairwise(points):
            corners += [(x, before), (x, y)]
        points = corners
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
