"""Pictures of models: every hospital by its size, and a metric by round.

Frames may hold NaN: what is undefined is left out and said in the picture.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from raysim.core.words import counted
from raysim.metrics.equity import size_slope
from raysim.metrics.labels import TaskKind, reporting
from raysim.report.naming import signed
from raysim.report.plots.canvas import INK, PALETTE, STROKES, WORST, plain, write_note
from raysim.report.svg.chart import spread
from raysim.report.tables import KEYS, hospital_means, labels
from raysim.statistics.differences.paired import FEW_HOSPITALS


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
        write_note(figure, "No round was evaluated.")
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
    note = "size bias undefined" if len(y) >= FEW_HOSPITALS else counted(len(y), "hospital")
    if np.isfinite(slope) and len(y) >= FEW_HOSPITALS:
        ends = np.array([x.min(), x.max()])
        ax.plot(ends, y.mean() + slope * (np.log(ends) - np.log(x).mean()), color=INK, lw=1.6)
        note = f"size bias {signed(slope, kind.decimals(y) + 1)} per ln stays"
    if undefined:
        note += f"\nundefined: {undefined}"
    height, align = (0.04, "bottom") if kind.larger else (0.96, "top")  # where there are few hospitals
    ax.text(0.97, height, note, transform=ax.transAxes, ha="right", va=align, fontsize=8.5, color=INK).set_bbox(
        {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1.5}
    )
