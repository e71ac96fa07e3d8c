"""What all pictures share: colours, axes, notes, and how they are written.

A picture is a matplotlib ``Figure`` made without ``pyplot``, so nothing global is touched and no display is needed.
Colours are those of Okabe and Ito, distinct for colour-blind readers, and never the only carrier of a meaning.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import BinaryIO

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#8C6D1F")
STROKES = ("-", "--", ":", "-.")
INK, MUTED, FAINT = "#1a1a1a", "#595959", "#d9d9d9"
GREY = "#8a8a8a"
WORST = "#D55E00"
DPI = 160


def save(figure: Figure, path: Path | str | BinaryIO, dpi: int = DPI) -> None:
    """Write ``figure`` to ``path`` (PNG, PDF or SVG by its suffix; PNG to an open file) on white."""
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=dpi, facecolor="white")


def plain(ax: Axes) -> None:
    """Axes with two spines and a faint grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color("#8a8a8a")
    ax.tick_params(labelsize=9, colors=MUTED)
    ax.grid(color=FAINT, lw=0.6)
    ax.set_axisbelow(True)


def write_note(figure: Figure, text: str) -> int:
    """Write ``text`` below everything, on as many lines as it needs; returns how many these are."""
    lines = textwrap.wrap(text, int(14 * figure.get_figwidth()))
    if lines:
        figure.text(0.99, 0.01, "\n".join(lines), ha="right", va="bottom", fontsize=8.5, color=MUTED, parse_math=False)
    return len(lines)


def pixels(ax: Axes, x: NDArray[np.float64], y: NDArray[np.float64]) -> list[tuple[float, float]]:
    """Data coordinates on the canvas."""
    return [(float(a), float(b)) for a, b in ax.transData.transform(np.column_stack([x, y]))]
