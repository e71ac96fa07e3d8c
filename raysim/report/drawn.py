"""A picture that a comparison adds to its page and its folder of plots, beside those that every comparison has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Drawn:
    """``name`` of its file, ``title`` over it, ``caption`` below it, and ``alt`` for those who cannot see it."""

    name: str
    title: str
    figure: Figure
    caption: str
    alt: str
