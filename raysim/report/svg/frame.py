"""The frame of a chart: two axes with gridlines, ticks and titles."""

from __future__ import annotations

import textwrap

import numpy as np
from markupsafe import Markup
from numpy.typing import ArrayLike

from raysim.report.svg.markup import element, joined
from raysim.report.svg.scales import Axis

WIDTH = 520.0
"""The width of a chart that is as wide as the text, in units of its ``viewBox``. On a phone, a unit is 0.7 pixels."""

LETTER = 6.6
"""The approximate width of a letter in narrow charts, in units of the ``viewBox``."""

LARGE_LETTER = 8.4
"""The approximate width of a letter in charts at least :data:`WIDTH` wide."""

NAMES = 0.58
"""The largest share of a chart's width for names on its vertical axis; longer names are cut."""

LINE = 15.0
"""The height of a line of text, in units of the ``viewBox``."""

SLOPE = (38, 0.62)
"""The angle of rotated names below a chart, in degrees, and its sine."""

CUT = 18
"""Rotated names are cut to this many characters."""


class Frame:
    """The axes of a chart, and the shapes drawn in them.

    Screen readers read the ``title`` and the ``description``.
    """

    def __init__(
        self,
        x: Axis,
        y: Axis,
        *,
        name: str,
        title: str = "",
        description: str = "",
        width: float = WIDTH,
        height: float = 300.0,
        right: float = 12.0,
        gridlines: str = "xy",
    ) -> None:
        """Set up the axes.

        - ``name``: the start of the ids of the chart's title and description on a page.
        - ``right``: the width of the free space on the right, for labels, in units of the chart.
        - ``gridlines``: the axes with gridlines: ``x``, ``y``, ``xy`` or empty.
        """
        self.x, self.y, self.name, self.title, self.description = x, y, name, title, description
        self.width, self.height = width, height
        self._letter = _letter(width)
        self._heading = heading_lines(title, width)
        longest = max((len(text) for text in y.texts), default=0)
        if y.kind == "names":  # their title is above the axis
            longest = max(longest, len(y.title))
        most = NAMES if y.kind == "names" else 0.45
        self._left = min(longest * self._letter, most * width) + 12 + (LINE if y.title and y.kind != "names" else 0)
        headed = LINE * len(self._heading) + 4 if title else 0
        self._top = 10 + headed + (LINE if y.title and y.kind == "names" else 0)
        self._slanted = self._overprint(width - right - self._left)
        below = SLOPE[1] * self._letter * min(max(map(len, x.texts), default=0), CUT) if self._slanted else 0.0
        self._right, self._bottom = width - right, height - (LINE + 8) - (LINE + 2 if x.title else 0) - below
        self._gridlines = gridlines
        self._marks: list[Markup] = []

    def _overprint(self, room: float) -> bool:
        """Whether horizontal names below the chart would overlap; ``room`` is the width of the axis."""
        texts = self.x.texts
        return self.x.kind == "names" and max(map(len, texts), default=0) * self._letter > room / max(len(texts), 1)

    def across(self, values: ArrayLike) -> np.ndarray:
        """Return positions on the horizontal axis, in units of the chart."""
        return self._left + self.x.places(values) * (self._right - self._left)

    def up(self, values: ArrayLike) -> np.ndarray:
        """Return positions on the vertical axis, in units of the chart; on an axis of names the first is on top."""
        places = self.y.places(values)
        places = places if self.y.kind == "names" else 1 - places
        return self._top + places * (self._bottom - self._top)

    def markup(self) -> Markup:
        """Return the chart as an ``svg`` element."""
        ids = f"{self.name}-title", f"{self.name}-said"
        return element(
            "svg",
            element("title", self.title or self.description, id=ids[0]),
            element("desc", self.description, id=ids[1]),
            *self._frame(),
            joined(self._marks),
            viewBox=f"0 0 {self.width:g} {self.height:g}",
            class_="chart",
            role="img",
            aria_labelledby=f"{ids[0]} {ids[1]}",
            style=f"--units: {self.width:g}",
        )

    def _frame(self) -> list[Markup]:
        parts: list[Markup] = []
        for k, text in enumerate(self._heading):
            parts.append(element("text", text, x=4.0, y=LINE * (k + 1), class_="heading"))
        lines = []
        for tick, text in zip(self.x.ticks, self.x.texts, strict=True):
            at = float(self.across([tick])[0])
            if "x" in self._gridlines and self.x.kind != "names":
                lines.append(f"M{at:.1f} {self._top:.1f}V{self._bottom:.1f}")
            if self._slanted:
                turn = f"translate({at + 3:.1f} {self._bottom + LINE - 3:.1f}) rotate(-{SLOPE[0]})"
                cut = text if len(text) <= CUT else f"{text[: CUT - 1]}…"
                parts.append(element("text", cut, class_="tick", text_anchor="end", transform=turn))
                continue
            parts.append(element("text", text, x=at, y=self._bottom + LINE, class_="tick", text_anchor="middle"))
        for tick, text in zip(self.y.ticks, self.y.texts, strict=True):
            at = float(self.up([tick])[0])
            if "y" in self._gridlines and self.y.kind != "names":
                lines.append(f"M{self._left:.1f} {at:.1f}H{self._right:.1f}")
            room = round((self._left - 12) / self._letter)
            cut = text if len(text) <= room or self.y.kind != "names" else f"{text[: room - 1]}…"
            parts.append(element("text", cut, x=self._left - 8, y=at + 4, class_="tick", text_anchor="end"))
        parts.insert(0, element("path", d="".join(lines), class_="grid"))
        middle = (self._left + self._right) / 2
        if self.x.title:
            parts.append(
                element("text", self.x.title, x=middle, y=self.height - 5, class_="axis", text_anchor="middle")
            )
        if self.y.title and self.y.kind == "names":
            parts.append(
                element("text", self.y.title, x=self._left - 8, y=self._top - 6, class_="axis", text_anchor="end")
            )
        elif self.y.title:
            at = (self._top + self._bottom) / 2
            turn = f"translate(12 {at:.1f}) rotate(-90)"
            parts.append(element("text", self.y.title, class_="axis", text_anchor="middle", transform=turn))
        return parts


def heading_lines(title: str, width: float = WIDTH) -> list[str]:
    """Split a ``title`` into lines that fit a chart of ``width`` units.

    >>> heading_lines("AUROC at the hospitals that it serves worst, by size", 250)
    ['AUROC at the hospitals that it', 'serves worst, by size']
    """
    return textwrap.wrap(title, int((width - 8) / _letter(width)))


def _letter(width: float) -> float:
    return LARGE_LETTER if width >= WIDTH else LETTER
