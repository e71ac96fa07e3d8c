"""The colour and marker of a strategy: hashed from its label, so that they are the same on almost every page.

Colours are CSS variables (``--c0`` to ``--c11``). Strategies with the same colour on a page have different markers.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from raysim.report.svg.markup import element

COLOURS = 12
SHAPES = ("circle", "square", "triangle", "diamond", "down", "plus", "right", "star")
FORMS = {"global": "filled", "cluster": "ringed", "personal": "open", "recalibrated": "dashed"}
"""The fill of a model's markers, by kind of model; by default filled."""
DASHES = {"filled": None, "ringed": "6 3", "open": "2 3", "dashed": "8 3 2 3"}
"""The dash pattern of lines, by the fill of markers."""

_COLOUR, _SHAPES = 18390854869086802817, (1, 2, 1, 1, 100, 12, 5, 136, 5, 13, 13, 36)
"""Factors that hash a strategy's label to a colour and, for each colour, to a shape.

A search found factors with these properties:

- No two registered strategies look the same, and none looks like the markers for hospitals that gain or lose.
- Strategies that are often compared differ in colour.
- Strategies of the main experiments also differ in shape.
"""

_CORNERS = {"triangle": (3, 90, 1.2), "down": (3, 270, 1.2), "right": (3, 0, 1.2), "diamond": (4, 90, 1.2)}
_PLUS = ((-1, 3), (1, 3), (1, 1), (3, 1), (3, -1), (1, -1), (1, -3), (-1, -3), (-1, -1), (-3, -1), (-3, 1), (-1, 1))
"""``_CORNERS`` has for each regular shape the number of corners, the first angle in degrees and the relative size.
``_PLUS`` has the corners of a plus.
"""


@dataclass(frozen=True)
class Style:
    """The colour and marker of a strategy and model in figures.

    ``colour`` is from 0 to 11, or -1 for the colour of text; ``form`` is filled, ringed, open or dashed.
    """

    colour: int
    shape: str
    form: str = "filled"

    @property
    def dash(self) -> str | None:
        """The dash pattern of the style's lines; None for a solid line."""
        return DASHES[self.form]

    @property
    def series(self) -> str | None:
        """The identifier of this style for a page's script; None if it belongs to no strategy."""
        return f"{self.colour}-{self.shape}-{self.form}" if self.colour >= 0 else None

    def marker(self, x: float, y: float, size: float = 4.5, **attributes: object) -> Markup:
        """Draw the marker centred at ``x, y`` with radius ``size``."""
        kind = f"c{self.colour} {self.form}"
        extra = attributes.pop("class_", None)
        attributes["class_"] = f"{kind} {extra}" if extra else kind
        if self.shape == "circle":
            return element("circle", cx=float(x), cy=float(y), r=float(size), **attributes)
        return element("path", d=_outline(self.shape, x, y, size), **attributes)


CURVED = re.compile(r", \w+ [-+.\de]+$")
"""Matches a hyper-parameter and its value at the end of a label, as in ``, mu 0.1``."""

PLAIN = Style(-1, "circle")
"""The style of markers that belong to no strategy."""


def style(label: str, model: str = "global") -> Style:
    """Return the style for a strategy's label (as configured) and its ``model``.

    A hyper-parameter at the end of the label, as in ``, mu 0.1``, does not change the style.
    """
    number = int.from_bytes(hashlib.blake2b(CURVED.sub("", label).encode(), digest_size=8).digest(), "big")
    colour = _hashed(number, _COLOUR) % COLOURS
    return Style(colour, SHAPES[_hashed(number, _SHAPES[colour]) % len(SHAPES)], FORMS.get(model, "filled"))


def styles(keys: Sequence[tuple[str, str]], among: Iterable[str] = ()) -> dict[tuple[str, str], Style]:
    """Return a style for each of ``keys``, which are pairs of a strategy's label and a model.

    ``among`` has the labels of all strategies on the page, by default those of ``keys``. If labels would look
    the same, the later ones in alphabetical order get unused markers or colours.
    """
    taken: set[tuple[int, str]] = set()
    chosen: dict[str, Style] = {}
    for label in sorted({label for label, _ in keys}.union(among)):
        look = style(label)
        for step in range(1, COLOURS * len(SHAPES)):
            if (look.colour, look.shape) not in taken:
                break
            shape = SHAPES[(SHAPES.index(look.shape) + 1) % len(SHAPES)]
            look = replace(look, shape=shape, colour=(look.colour + (step % len(SHAPES) == 0)) % COLOURS)
        taken.add((look.colour, look.shape))
        chosen[label] = look
    return {(label, model): replace(chosen[label], form=FORMS.get(model, "filled")) for label, model in keys}


def _hashed(number: int, factor: int) -> int:
    return (number * factor & 0xFFFFFFFFFFFFFFFF) >> 40


def _outline(shape: str, x: float, y: float, size: float) -> str:
    if shape == "square":
        half = 0.9 * size
        corners = [(x + i * half, y + j * half) for i, j in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    elif shape == "plus":
        corners = [(x + i * size / 2.6, y + j * size / 2.6) for i, j in _PLUS]
    elif shape == "star":
        corners = [
            (x + r * math.cos(angle), y - r * math.sin(angle))
            for k in range(10)
            for r, angle in ((size * (1.35 if k % 2 == 0 else 0.6), math.pi / 2 + k * math.pi / 5),)
        ]
    else:
        number, first, scale = _CORNERS[shape]
        angles = [math.radians(first + 360 * k / number) for k in range(number)]
        corners = [(x + scale * size * math.cos(a), y - scale * size * math.sin(a)) for a in angles]
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in corners) + "Z"
