"""Pictures of a run and of a comparison, from plain data frames.

Every function returns a matplotlib ``Figure`` made without ``pyplot``, so nothing global is touched and no display is
needed; :func:`save` writes it. Frames may hold NaN: what is undefined is left out and said in the picture. Colours are
those of Okabe and Ito, distinct for colour-blind readers, and never the only carrier of a meaning.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from raysim.metrics.equity import size_slope
from raysim.metrics.labels import TaskKind, reporting
from raysim.report.naming import signed
from raysim.report.plots.labels import label_points
from raysim.report.svg.chart import spread
from raysim.report.tables import KEYS, front_among_candidates, hospital_means, labels, yardsticks
from raysim.statistics.differences.paired import FEW_HOSPITALS

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


def auroc_by_size(hospitals: pd.DataFrame) -> Figure:
    """Each hospital's AUROC (or MAE) against its stays (logarithmic), a panel for each strategy and model served.

    ``hospitals`` has ``strategy, model, hospital, n_train, n_test, auroc`` (or ``mae``) and optionally ``seed`` (a dot
    is then the hospital's mean over seeds), ``n_validation`` and ``stays``. The line is least squares on ln stays, the
    size bias; triangles are the worst decile.
    """
    means, kind = hospital_means(hospitals), reporting(hospitals)
    panels = list(means.groupby(KEYS, sort=False)) if len(means) else []
    names = labels(pd.DataFrame([key for key, _ in panels], columns=KEYS)) if panels else ["no hospitals"]
    columns = min(len(names), 3)
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(3.0 * columns if columns > 1 else 5.2, 2.6 * rows + 0.9), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    defined = means[(means["n_test"] > 0) & means[kind.headline].notna() & (means["stays"] > 0)]
    low, high = 0.0, 1.02
    if len(defined) and kind.larger:
        low = max(0.0, float(defined[kind.headline].min()) - 0.04)
    elif len(defined):
        high = 1.06 * float(defined[kind.headline].max()) or 1.0
    decades = bool(len(defined)) and defined["stays"].max() / defined["stays"].min() > 50
    for k, ax in enumerate(axes):
        if k >= len(names):
            ax.set_visible(False)
            continue
        plain(ax)
        ax.set_title(names[k], fontsize=10, loc="left", color=INK, parse_math=False)
        ax.set_ylim(low, high)
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1,) if decades else (1, 2, 5), numticks=8))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
        if k + columns >= len(names):  # the lowest of its column: its own scale would be hidden by sharing
            ax.tick_params(labelbottom=True)
        if panels:
            _panel(ax, panels[k][1], kind)
    figure.supxlabel("stays at the hospital (logarithmic)", fontsize=10, color=INK)
    figure.supylabel(f"{kind.title} at the hospital", fontsize=10, color=INK)
    marks = [
        Line2D([], [], ls="", marker="o", ms=5, color=PALETTE[0], alpha=0.6, label="a hospital"),
        Line2D([], [], ls="", marker="^", ms=6, color=WORST, label="worst decile"),
        Line2D([], [], color=INK, lw=1.6, label="size bias (least squares)"),
    ]
    if all((panel[kind.headline].notna() & (panel["n_test"] > 0)).sum() < FEW_HOSPITALS for _, panel in panels):
        marks = [marks[0], Line2D([], [], ls="", marker="^", ms=6, color=WORST, label=f"{kind.worst} hospital")]
    figure.legend(handles=marks, loc="outside upper left", ncols=3, frameon=False, fontsize=9)
    return figure


def worst_decile_vs_size_bias(comparison: pd.DataFrame) -> Figure:
    """Worst decile against |size bias|, one point a strategy and model, error bars one deviation over seeds.

    ``comparison`` has ``strategy, model, worst_decile, size_bias`` and optionally ``size_bias_abs`` and each ``_std``;
    with a column ``mae``, the worst decile is one of errors, and the vertical axis is turned. The line joins the points
    that no other beats on both (upper left is better). A point so far out that it would squeeze the others into a
    corner is named below the axes instead.
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
        _note(figure, note)
        return figure
    names = [n for n, s in zip(names, shown, strict=True) if s]
    x, y = (table[c].to_numpy(float)[shown] for c in ("size_bias_abs", "worst_decile"))
    dx, dy = (_deviation(table, c)[shown] for c in ("size_bias_abs", "worst_decile"))
    aside = yardsticks(table)[shown]
    front = front_among_candidates(np.column_stack([-x, kind.upwards(y)]), aside)
    kept = _core(np.column_stack([x, y]), front)
    digits = kind.decimals(y)
    far = [f"{names[i]} ({x[i]:.{digits}f}, {y[i]:.{digits}f})" for i in np.flatnonzero(~kept)]
    lines = _note(
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
    legend = ["means not dominated", "dominated: another has means as good, and one better", "* reference"]
    ax.legend(marks, legend, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False, fontsize=9)
    points = _pixels(ax, x[kept], y[kept])
    arms = [*zip(_pixels(ax, (x - dx)[kept], y[kept]), _pixels(ax, (x + dx)[kept], y[kept]), strict=True)]
    arms += zip(_pixels(ax, x[kept], (y - dy)[kept]), _pixels(ax, x[kept], (y + dy)[kept]), strict=True)
    label_points(ax, points, [names[i] for i in np.flatnonzero(kept)], arms)
    return figure


def frontier_3d(comparison: pd.DataFrame) -> Figure:
    """The frontier of the CHiP paper: mean AUROC, worst decile and |size bias|; dominated points are grey.

    Columns as for :func:`worst_decile_vs_size_bias`, with ``auroc`` or ``mae``. The vertical axis is turned, so that up
    is less size bias and the best corner is the upper one at the back; with errors the other two axes are turned too.
    """
    table, kind = _with_bias(comparison), reporting(comparison)
    names = labels(table)
    figures = [kind.headline, "worst_decile", "size_bias_abs"]
    shown, note = _shown(table, names, figures)
    figure = Figure(figsize=(8.4, 6.2))
    ax: Any = figure.add_axes((0.0, 0.0, 1.0, 0.97), projection="3d")
    ax.view_init(elev=20, azim=-128)
    ax.set_proj_type("ortho")
    ax.set_box_aspect((1.15, 1.15, 0.85), zoom=1.0)
    ax.set_xlabel(f"mean {kind.title}", fontsize=10, labelpad=9, color=INK)
    ax.set_ylabel(f"{kind.title} of the worst decile", fontsize=10, labelpad=9, color=INK)
    ax.set_zlabel(_size_bias(kind), fontsize=10, labelpad=9, color=INK)
    ax.tick_params(labelsize=8.5, colors=MUTED)
    for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
        axis.set_pane_color((0.97, 0.97, 0.97, 1.0))
        axis.set_major_locator(MaxNLocator(5))
    names = [n for n, s in zip(names, shown, strict=True) if s]
    points = table[figures].to_numpy(float)[shown]
    aside = yardsticks(table)[shown]
    front = front_among_candidates(np.column_stack([kind.upwards(points[:, :2]), -points[:, 2]]), aside)
    kept = _core(points, front)
    digits = kind.decimals(points[:, 0])
    far = [f"{names[i]} ({', '.join(f'{v:.{digits}f}' for v in points[i])})" for i in np.flatnonzero(~kept)]
    _note(figure, "; ".join([*([f"Beyond the axes: {', '.join(far)}"] if far else []), *([note] if note else [])]))
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
    legend = ["means on the frontier", "dominated: another has means as good, and one better", "* reference"]
    figure.legend(marks, legend, loc="upper left", ncols=3, frameon=False, fontsize=9)
    feet = points.copy()
    feet[:, 2] = floor
    heads = _projected(figure, ax, points)
    label_points(ax, heads, names, list(zip(heads, _projected(figure, ax, feet), strict=True)))
    return figure


def curves(rounds: pd.DataFrame, metric: str | None = None, title: str = "") -> Figure:
    """A metric by round: a line a strategy (and model, if there is the column), a band of one deviation over seeds.

    ``rounds`` has ``strategy, seed, round`` and the ``metric``, called ``title``; None is the mean AUROC (or MAE) over
    hospitals. Rounds where it is missing (not evaluated) are skipped.
    """
    if metric is None:
        metric, title = reporting(rounds).headline, f"mean {reporting(rounds).title} over hospitals"
    table = rounds if "model" in rounds else rounds.assign(model="global")
    table = table[table[metric].notna()]
    lines = list(table.groupby(KEYS, sort=False)) if len(table) else []
    names = labels(pd.DataFrame([key for key, _ in lines], columns=KEYS)) if lines else []
    figure = Figure(figsize=(8.4, 4.8))
    ax = figure.add_axes((0.095, 0.125, 0.68, 0.84))
    plain(ax)
    ax.set_xlabel("round", fontsize=10, color=INK)
    ax.set_ylabel(title, fontsize=10, color=INK)
    ends = []
    for k, (_, group) in enumerate(lines):
        colour, stroke = PALETTE[k % len(PALETTE)], STROKES[k // len(PALETTE) % len(STROKES)]
        by_round = group.groupby("round")[metric].agg(["mean", "std"]).sort_index()
        x, mean, band = by_round.index.to_numpy(float), by_round["mean"].to_numpy(), by_round["std"].to_numpy()
        ax.plot(x, mean, color=colour, ls=stroke, lw=1.8, marker="o" if len(x) < 2 else "", ms=5)
        if np.isfinite(band).any():
            ax.fill_between(x, mean - band, mean + band, color=colour, alpha=0.13, lw=0)
        ends.append((x[-1], mean[-1], colour))
    if not ends:
        _note(figure, "No round was evaluated.")
        return figure
    ax.margins(x=0.02)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.autoscale_view()
    pixel, (bottom, top) = figure.dpi / 72, (ax.bbox.y0, ax.bbox.y1)
    heights = [float(ax.transData.transform((x, y))[1]) for x, y, _ in ends]
    room = spread(heights, 12.5 * pixel, bottom + 4 * pixel, top - 4 * pixel)
    for (x, y, colour), height, name in zip(ends, room, names, strict=True):
        ax.annotate(
            name,
            xy=(x, y),
            xytext=(1.035, (height - bottom) / (top - bottom)),
            textcoords="axes fraction",
            fontsize=9,
            va="center",
            color=INK,
            parse_math=False,
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 1.1, "shrinkA": 1, "shrinkB": 2, "relpos": (0, 0.5)},
        )
    return figure


def _panel(ax: Axes, panel: pd.DataFrame, kind: TaskKind) -> None:
    """One strategy's hospitals, their worst decile and the line of size bias."""
    figure = kind.headline
    defined = panel[(panel["n_test"] > 0) & panel[figure].notna() & (panel["stays"] > 0)]
    defined = defined.sort_values(figure, ascending=kind.larger)
    undefined = int(((panel["n_test"] > 0) & panel[figure].isna()).sum())
    x, y = defined["stays"].to_numpy(float), defined[figure].to_numpy(float)
    worst = -(-len(y) // 10)
    ax.plot(x[worst:], y[worst:], "o", ms=4, color=PALETTE[0], alpha=0.5, mec="none")
    ax.plot(x[:worst], y[:worst], "^", ms=5, color=WORST, alpha=0.9, mec="none")
    slope = size_slope(y, x)
    said = "size bias undefined" if len(y) >= FEW_HOSPITALS else f"{len(y)} hospitals"
    if np.isfinite(slope) and len(y) >= FEW_HOSPITALS:
        ends = np.array([x.min(), x.max()])
        ax.plot(ends, y.mean() + slope * (np.log(ends) - np.log(x).mean()), color=INK, lw=1.6)
        said = f"size bias {signed(slope, kind.decimals(y) + 1)} per ln stays"
    if undefined:
        said += f"\nundefined: {undefined}"
    height, align = (0.04, "bottom") if kind.larger else (0.96, "top")  # where there are few hospitals
    ax.text(0.97, height, said, transform=ax.transAxes, ha="right", va=align, fontsize=8.5, color=INK).set_bbox(
        {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1.5}
    )


def plain(ax: Axes) -> None:
    """Axes with two spines and a faint grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color("#8a8a8a")
    ax.tick_params(labelsize=9, colors=MUTED)
    ax.grid(color=FAINT, lw=0.6)
    ax.set_axisbelow(True)


def _size_bias(kind: TaskKind) -> str:
    return f"size bias, absolute ({kind.title} per ln stays)"


def _bounds(kind: TaskKind) -> tuple[float, float]:
    """What the headline figure cannot fall below and cannot exceed."""
    return (-np.inf, 1.0) if kind.larger else (0.0, np.inf)


def _turned(limits: tuple[float, float], kind: TaskKind) -> tuple[float, float]:
    """Limits of an axis on which up, or right, is better."""
    return limits if kind.larger else limits[::-1]


def _note(figure: Figure, note: str) -> int:
    """Write ``note`` below everything, on as many lines as it needs; returns how many these are."""
    lines = textwrap.wrap(note, int(14 * figure.get_figwidth()))
    if lines:
        text = "\n".join(lines)
        figure.text(0.99, 0.01, text, ha="right", va="bottom", fontsize=8.5, color=MUTED, parse_math=False)
    return len(lines)


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
    missing = [name for name, there in zip(names, shown, strict=True) if not there]
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


def _core(points: NDArray[np.float64], front: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The points ``[n, d]`` that the axes should span, ``[n]``.

    A point far out (beyond three interquartile ranges, Tukey's far fence) would squeeze all others into a corner; it
    is named in a note instead. Points on the front always stay, and so do all where there are few.
    """
    if len(points) < 5:
        return np.ones(len(points), dtype=bool)
    low, high = np.quantile(points, [0.25, 0.75], axis=0)
    fence = 3 * (high - low) + 1e-9
    near: NDArray[np.bool_] = np.logical_and.reduce((points >= low - fence) & (points <= high + fence), axis=1)
    return near | front


def _pixels(ax: Axes, x: NDArray[np.float64], y: NDArray[np.float64]) -> list[tuple[float, float]]:
    """Data coordinates on the canvas."""
    return [(float(a), float(b)) for a, b in ax.transData.transform(np.column_stack([x, y]))]


def _projected(figure: Figure, ax: Any, points: NDArray[np.float64]) -> list[tuple[float, float]]:
    """Where points of a 3-D plot fall on the canvas, in pixels."""
    from mpl_toolkits.mplot3d import proj3d

    FigureCanvasAgg(figure).draw()
    x, y, _ = proj3d.proj_transform(*points.T, ax.get_proj())
    return _pixels(ax, x, y)
