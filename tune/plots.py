"""Pictures of a sweep: its trials by their objectives, the Pareto set in colour and dominated trials grey.

Figures are made and saved as :mod:`raysim.report.plots.canvas` says.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from io import BytesIO
from itertools import combinations
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from raysim.metrics.equity import pareto_front
from raysim.report.plots.canvas import FAINT, GREY, INK, MUTED, PALETTE, WORST, save
from raysim.tune.choice import LABELS, Choice
from raysim.tune.pareto import signed


def all_figures(choice: Choice) -> dict[str, Callable[[], Figure]]:
    """By name, what draws a picture of every pair of objectives, and of every three; none of an empty Pareto set."""
    if not choice.front.any():
        return {}
    names, several = choice.sweep.names, range(len(choice.sweep.names))
    pairs = {pair: partial(pair_figure, choice, *pair) for pair in combinations(several, 2)}
    threes = {three: partial(frontier_figure, choice, three) for three in combinations(several, 3)}
    return {"_".join(names[j] for j in axes): draw for axes, draw in (pairs | threes).items()}


def png(figure: Figure) -> bytes:
    """A picture as a file."""
    save(figure, written := BytesIO())
    return written.getvalue()


def pair_figure(choice: Choice, x: int, y: int) -> Figure:
    """Trials by two objectives. Blue trials are not dominated over all objectives; the line joins those that are not
    dominated on these two alone; bars on the recommended trial are one deviation over seeds.
    """
    figure = Figure(figsize=(7.6, 5.2))
    ax = figure.add_axes((0.11, 0.12, 0.86, 0.76))
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(GREY)
    ax.tick_params(labelsize=9, colors=MUTED)
    ax.grid(color=FAINT, lw=0.6)
    ax.set_axisbelow(True)
    ax.set_xlabel(axis_label(choice, x), fontsize=10, color=INK)
    ax.set_ylabel(axis_label(choice, y), fontsize=10, color=INK)
    shown = np.isfinite(choice.values).all(axis=1)
    points, on = choice.values[:, [x, y]], choice.front
    off = shown & ~on
    ax.plot(*points[off].T, "s", ms=4.5, color=GREY, mec="white", mew=0.5, alpha=0.8)
    two = signed(points[shown], [choice.sweep.larger[x], choice.sweep.larger[y]])
    line = points[shown][pareto_front(two)]
    ax.plot(*line[np.argsort(line[:, 0])].T, color=MUTED, lw=1.1, ls="--", zorder=1)
    ax.plot(*points[on].T, "o", ms=6.5, color=PALETTE[0], mec="white", mew=0.6)
    _recommended_2d(ax, choice, x, y)
    marks = [*_marks(choice), Line2D([], [], color=MUTED, lw=1.1, ls="--", label="not dominated on these two")]
    figure.legend(handles=marks, loc="upper left", bbox_to_anchor=(0.1, 0.995), ncols=2, frameon=False, fontsize=9)
    return figure


def frontier_figure(choice: Choice, axes: tuple[int, ...]) -> Figure:
    """Trials by three objectives, each on a stem from the floor; the best corner is the upper one at the back."""
    figure = Figure(figsize=(8.0, 6.0))
    ax: Any = figure.add_axes((0.0, 0.0, 1.0, 0.94), projection="3d")
    ax.view_init(elev=20, azim=-128)
    ax.set_proj_type("ortho")
    ax.set_box_aspect((1.15, 1.15, 0.85), zoom=0.95)
    ax.tick_params(labelsize=8, colors=MUTED)
    shown = np.flatnonzero(np.isfinite(choice.values).all(axis=1))
    points = choice.values[:, list(axes)]
    limits = []
    for axis, j, label, limit in zip(
        (ax.xaxis, ax.yaxis, ax.zaxis),
        axes,
        (ax.set_xlabel, ax.set_ylabel, ax.set_zlabel),
        (ax.set_xlim, ax.set_ylim, ax.set_zlim),
        strict=True,
    ):
        axis.set_pane_color((0.97, 0.97, 0.97, 1.0))
        axis.set_major_locator(MaxNLocator(5))
        label(axis_label(choice, j), fontsize=9.5, labelpad=9, color=INK)
        values = choice.values[shown, j]
        room = 0.06 * float(np.ptp(values)) or 0.01
        ends = (float(values.min()) - room, float(values.max()) + room)
        limits.append(ends if choice.sweep.larger[j] else ends[::-1])
        limit(*limits[-1])
    floor = limits[2][0]
    for i in shown[np.argsort(choice.front[shown], kind="stable")]:
        on, (a, b, c) = bool(choice.front[i]), points[i]
        colour = PALETTE[0] if on else GREY
        ax.plot([a, a], [b, b], [floor, c], color=colour, lw=0.7, alpha=0.45 if on else 0.2)
        style: dict[str, Any] = {"marker": "o", "ms": 7} if on else {"marker": "s", "ms": 4.5, "alpha": 0.7}
        if choice.recommended is choice.trials[i]:
            colour, style = WORST, {"marker": "D", "ms": 9}
        ax.plot([a], [b], [c], color=colour, mec="white", mew=0.5, **style)
    figure.legend(handles=_marks(choice), loc="upper left", ncols=2, frameon=False, fontsize=9)
    return figure


def axis_label(choice: Choice, j: int) -> str:
    """The label of an objective's axis, with which way is better."""
    name = choice.sweep.names[j]
    words = f"{choice.kind.title} of the worst decile" if name == "worst_decile" else LABELS.get(name, name)
    return f"{words}   ({'more' if choice.sweep.larger[j] else 'less'} is better)"


def _recommended_2d(ax: Any, choice: Choice, x: int, y: int) -> None:
    trial = choice.recommended
    if trial is None:
        return
    (a, da), (b, db) = (trial.figures[choice.sweep.names[j]] for j in (x, y))
    if np.isfinite([da, db]).all():
        ax.errorbar(a, b, xerr=da, yerr=db, fmt="none", ecolor=WORST, elinewidth=1.0, alpha=0.6, zorder=3)
    ax.plot(a, b, "D", ms=9, color=WORST, mec="white", zorder=4)


def _marks(choice: Choice) -> list[Line2D]:
    trial = choice.recommended
    marks = [
        Line2D([], [], ls="", marker="o", ms=6.5, color=PALETTE[0], mec="white", label="Pareto set, all objectives"),
        Line2D([], [], ls="", marker="s", ms=5, color=GREY, mec="white", label="dominated"),
    ]
    if trial is not None:
        label = f"recommended: trial {trial.number}"
        marks.insert(0, Line2D([], [], ls="", marker="D", ms=8, color=WORST, mec="white", label=label))
    return marks
