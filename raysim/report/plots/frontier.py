"""Strategies by accuracy and equity, and which of them no other beats on all.

Frames may hold NaN: what is undefined is left out and said in the picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from raysim.metrics.equity import pareto_front
from raysim.metrics.labels import TaskKind, reporting
from raysim.report.plots.canvas import GREY, INK, MUTED, PALETTE, pixels, plain, write_note
from raysim.report.plots.labels import label_points
from raysim.report.tables import labels, yardsticks

NOT_DOMINATED = "not dominated"
DOMINATED = "dominated: another is better on the mean or the worst decile, by intervals, and worse on neither"


def worst_decile_vs_size_bias(comparison: pd.DataFrame) -> Figure:
    """Worst decile against |size bias|, one point a strategy and model, error bars one deviation over seeds.

    ``comparison`` has ``strategy, model, worst_decile, size_bias`` and optionally ``size_bias_abs`` and each ``_std``;
    with a column ``mae``, the worst decile is one of errors, and the vertical axis is turned. ``dominated`` says which
    another dominates, as the answer does; without it none is. The line joins the others (upper left is better). A point
    so far out that it would squeeze the others into a corner is named below the axes instead.
    """
    table, kind = _with_bias(comparison), reporting(comparison)
    names = labels(table)
    shown, note = _shown(table, names, ["size_bias_abs", "worst_decile"])
    figure = Figure(figsize=(8.4, 5.4))
    ax = figure.add_axes((0.095, 0.125, 0.875, 0.8))
    plain(ax)
    ax.set_xlabel(f"{_size_bias(kind)}     ← less is better", fontsize=10, color=INK)
    ax.set_ylabel(f"{kind.title} of the worst decile     better →", fontsize=10, color=INK)
    if not shown.any():
        write_note(figure, note)
        return figure
    names = [n for n, s in zip(names, shown, strict=True) if s]
    x, y = (table[c].to_numpy(float)[shown] for c in ("size_bias_abs", "worst_decile"))
    dx, dy = (_deviation(table, c)[shown] for c in ("size_bias_abs", "worst_decile"))
    aside = yardsticks(table)[shown]
    front = _front(table)[shown]
    kept = _core(np.column_stack([x, y]), pareto_front(np.column_stack([-x, kind.upwards(y)])) & ~aside)
    digits = kind.decimals(y)
    far = [f"{names[i]} ({x[i]:.{digits}f}, {y[i]:.{digits}f})" for i in np.flatnonzero(~kept)]
    lines = write_note(
        figure, "; ".join([*([f"Beyond the axes: {', '.join(far)}"] if far else []), *([note] if note else [])])
    )
    if lines > 1:  # the first has room below the axis' name
        ax.set_position((0.095, 0.095 + 0.03 * lines, 0.875, 0.83 - 0.03 * lines))
    along = np.flatnonzero(front)[np.argsort(x[front], kind="stable")]
    ax.plot(x[along], y[along], color=MUTED, lw=1.2, ls="--", zorder=1)
    for i in np.flatnonzero(kept):
        colour = PALETTE[0] if front[i] else GREY
        ax.errorbar(x[i], y[i], xerr=dx[i], yerr=dy[i], fmt="none", ecolor=colour, elinewidth=0.9, alpha=0.5, zorder=2)
        ax.plot(x[i], y[i], **_mark(bool(front[i]), bool(aside[i])), zorder=3)
    ax.set_xlim(*_limits(np.concatenate([x - dx, x + dx])[np.tile(kept, 2)], floor=0.0))
    ax.set_ylim(*_turned(_limits(np.concatenate([y - dy, y + dy])[np.tile(kept, 2)], *_bounds(kind)), kind))
    marks = [
        Line2D([], [], color=MUTED, lw=1.2, ls="--", marker="o", mfc=PALETTE[0], mec="white", ms=7),
        Line2D([], [], ls="", **_mark(False, False)),
        Line2D([], [], ls="", **_mark(False, True)),
    ]
    legend = [NOT_DOMINATED, DOMINATED, "* reference"]
    ax.legend(marks, legend, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False, fontsize=9)
    points = pixels(ax, x[kept], y[kept])
    arms = [*zip(pixels(ax, (x - dx)[kept], y[kept]), pixels(ax, (x + dx)[kept], y[kept]), strict=True)]
    arms += zip(pixels(ax, x[kept], (y - dy)[kept]), pixels(ax, x[kept], (y + dy)[kept]), strict=True)
    label_points(ax, points, [names[i] for i in np.flatnonzero(kept)], arms)
    return figure


def frontier_3d(comparison: pd.DataFrame) -> Figure:
    """The frontier of the CHiP paper: mean AUROC, worst decile and Gini coefficient; dominated points are grey.

    Columns as for :func:`worst_decile_vs_size_bias`, with ``gini`` and with ``auroc`` or ``mae``. The vertical axis is
    turned, so that up is a smaller coefficient and the best corner is the upper one at the back; with errors the other
    two axes are turned too.
    """
    table, kind = _with_bias(comparison), reporting(comparison)
    names = labels(table)
    figures = [kind.headline, "worst_decile", "gini"]
    shown, note = _shown(table, names, figures)
    figure = Figure(figsize=(8.4, 6.2))
    ax: Any = figure.add_axes((0.0, 0.0, 1.0, 0.97), projection="3d")
    ax.view_init(elev=20, azim=-128)
    ax.set_proj_type("ortho")
    ax.set_box_aspect((1.15, 1.15, 0.85), zoom=1.0)
    ax.set_xlabel(f"mean {kind.title}", fontsize=10, labelpad=9, color=INK)
    ax.set_ylabel(f"{kind.title} of the worst decile", fontsize=10, labelpad=9, color=INK)
    ax.set_zlabel("Gini coefficient over hospitals", fontsize=10, labelpad=9, color=INK)
    ax.tick_params(labelsize=8.5, colors=MUTED)
    for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
        axis.set_pane_color((0.97, 0.97, 0.97, 1.0))
        axis.set_major_locator(MaxNLocator(5))
    names = [n for n, s in zip(names, shown, strict=True) if s]
    points = table[figures].to_numpy(float)[shown]
    aside = yardsticks(table)[shown]
    front = _front(table)[shown]
    kept = _core(points, pareto_front(np.column_stack([kind.upwards(points[:, :2]), -points[:, 2]])) & ~aside)
    digits = kind.decimals(points[:, 0])
    far = [f"{names[i]} ({', '.join(f'{v:.{digits}f}' for v in points[i])})" for i in np.flatnonzero(~kept)]
    write_note(figure, "; ".join([*([f"Beyond the axes: {', '.join(far)}"] if far else []), *([note] if note else [])]))
    if not kept.any():
        return figure
    points, front, aside, names = points[kept], front[kept], aside[kept], [names[i] for i in np.flatnonzero(kept)]
    x, y, z = points.T
    ax.set_xlim(*_turned(_limits(x, *_bounds(kind)), kind))
    ax.set_ylim(*_turned(_limits(y, *_bounds(kind)), kind))
    best, floor = _limits(z, floor=0.0)
    ax.set_zlim(floor, best)
    for i in range(len(points)):
        colour = PALETTE[0] if front[i] else GREY
        ax.plot([x[i]] * 2, [y[i]] * 2, [floor, z[i]], color=colour, lw=0.8, alpha=0.6)
        ax.plot([x[i]], [y[i]], [floor], ".", color=colour, ms=3, alpha=0.7)
        ax.plot([x[i]], [y[i]], [z[i]], **_mark(bool(front[i]), bool(aside[i])))
    marks = [
        Line2D([], [], ls="", **_mark(True, False)),
        Line2D([], [], ls="", **_mark(False, False)),
        Line2D([], [], ls="", **_mark(False, True)),
    ]
    legend = [NOT_DOMINATED, DOMINATED, "* reference"]
    figure.legend(marks, legend, loc="upper left", ncols=3, frameon=False, fontsize=9)
    feet = points.copy()
    feet[:, 2] = floor
    heads = _projected(figure, ax, points)
    label_points(ax, heads, names, list(zip(heads, _projected(figure, ax, feet), strict=True)))
    return figure


def _size_bias(kind: TaskKind) -> str:
    return f"size bias, absolute ({kind.title} per ln stays)"


def _bounds(kind: TaskKind) -> tuple[float, float]:
    """What the headline figure cannot fall below and cannot exceed."""
    return (-np.inf, 1.0) if kind.larger else (0.0, np.inf)


def _turned(limits: tuple[float, float], kind: TaskKind) -> tuple[float, float]:
    """Limits of an axis on which up, or right, is better."""
    return limits if kind.larger else limits[::-1]


def _with_bias(comparison: pd.DataFrame) -> pd.DataFrame:
    """With ``model`` and the absolute size bias, from the signed one where it is not given."""
    table = comparison.reset_index(drop=True)
    if "model" not in table:
        table = table.assign(model="global")
    if "size_bias_abs" not in table:
        table = table.assign(size_bias_abs=table["size_bias"].abs())
        if "size_bias_std" in table:
            table = table.assign(size_bias_abs_std=table["size_bias_std"])
    return table


def _front(table: pd.DataFrame) -> NDArray[np.bool_]:
    """The strategies and models that no other dominates, ``[n]``, by the answer's intervals; references are none."""
    dominated = table["dominated"].to_numpy(bool) if "dominated" in table else np.zeros(len(table), dtype=np.bool_)
    return ~(dominated | yardsticks(table))


def _mark(front: bool, aside: bool) -> dict[str, Any]:
    """How a point is drawn: on the front, dominated, or aside as a reference."""
    if aside:
        return {"marker": "D", "ms": 6, "color": "none", "mec": INK}
    return {
        "marker": "o" if front else "s",
        "ms": 7.5 if front else 6,
        "color": PALETTE[0] if front else GREY,
        "mec": "white",
    }


def _shown(table: pd.DataFrame, names: Sequence[str], columns: list[str]) -> tuple[NDArray[np.bool_], str]:
    """Which rows have all ``columns``, and a sentence that names the others."""
    shown: NDArray[np.bool_] = np.logical_and.reduce(np.isfinite(table[columns].to_numpy(float)), axis=1)
    missing = [name for name, is_shown in zip(names, shown, strict=True) if not is_shown]
    return shown, f"Not shown, undefined: {', '.join(missing)}" if missing else ""


def _deviation(table: pd.DataFrame, column: str) -> NDArray[np.float64]:
    """The deviation over seeds, 0 where there is none to show."""
    if f"{column}_std" not in table:
        return np.zeros(len(table))
    deviation: NDArray[np.float64] = np.nan_to_num(table[f"{column}_std"].to_numpy(float))
    return deviation


def _limits(values: NDArray[np.float64], floor: float = -np.inf, ceiling: float = np.inf) -> tuple[float, float]:
    """Axis limits with room for labels; ``floor`` and ``ceiling`` bound what the quantity can be."""
    low, high = float(values.min()), float(values.max())
    room = 0.14 * (high - low) or max(0.1 * abs(high), 0.01)
    return max(low - room, floor), min(high + room, max(ceiling, high))


def _core(points: NDArray[np.float64], best: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The points ``[n, d]`` that the axes should span, ``[n]``.

    A point far out (beyond three interquartile ranges, Tukey's far fence) would squeeze all others into a corner; it
    is named in a note instead. The ``best`` always stay, and so do all where there are few.
    """
    if len(points) < 5:
        return np.ones(len(points), dtype=bool)
    low, high = np.quantile(points, [0.25, 0.75], axis=0)
    fence = 3 * (high - low) + 1e-9
    near: NDArray[np.bool_] = np.logical_and.reduce((points >= low - fence) & (points <= high + fence), axis=1)
    return near | best


def _projected(figure: Figure, ax: Any, points: NDArray[np.float64]) -> list[tuple[float, float]]:
    """Where points of a 3-D plot fall on the canvas, in pixels."""
    from mpl_toolkits.mplot3d import proj3d

    FigureCanvasAgg(figure).draw()
    x, y, _ = proj3d.proj_transform(*points.T, ax.get_proj())
    return pixels(ax, x, y)
