"""The picture of ``raysim curve``: mean and variance over hospitals against a hyper-parameter."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from raysim.report.figures.curve import UNITS
from raysim.report.plots.canvas import FAINT, INK, MUTED, PALETTE
from raysim.report.svg import spaced

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("--", ":", "-.")


def curves(
    table: pd.DataFrame, field: str, figure: str, scale: str = "linear", names: Mapping[str, str] | None = None
) -> Figure:
    """From :func:`raysim.experiment.curve.curve_table`: a panel for the mean, one for the variance, a line a strategy.

    Lines are means over seeds, bands reach one deviation over seeds to either side. Strategies whose ``field`` is
    missing are level, broken lines without a band. ``scale`` of the vertical axes: ``linear`` or ``log``; the
    horizontal one is logarithmic where the values are spaced so. ``names``: what people call the lines.
    """
    unit = UNITS.get(figure, figure)
    drawn = Figure(figsize=(9.6, 4.2), layout="constrained")
    for ax, column in zip(drawn.subplots(1, 2), ("mean", "variance"), strict=True):
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=9, colors=MUTED)
        ax.grid(color=FAINT, lw=0.6)
        ax.set_title(f"{column} over hospitals", fontsize=10, loc="left", color=INK)
        ax.set_xlabel(field, fontsize=10, color=INK, parse_math=False)
        ax.set_ylabel(unit if column == "mean" else f"{unit.partition(',')[0]}²", fontsize=10, color=INK)
        ax.set_yscale(scale)
        for k, (line, rows) in enumerate(table.groupby("line", sort=False)):
            called = (names or {}).get(str(line), str(line))
            color = PALETTE[k % len(PALETTE)]
            if rows[field].isna().all():
                ax.axhline(rows[column].mean(), color=color, ls=DASHES[k % len(DASHES)], lw=1.6, label=called)
                continue
            over = rows.groupby(field)[column].agg(["mean", "std"]).fillna({"std": 0.0})
            ax.plot(over.index, over["mean"], color=color, marker=MARKERS[k % len(MARKERS)], ms=5, lw=1.6, label=called)
            low = over["mean"] - over["std"]
            if scale == "log":
                low = low.clip(lower=over["mean"] / 10)  # a band to 0 would reach out of the picture
            ax.fill_between(over.index, low, over["mean"] + over["std"], color=color, alpha=0.12, lw=0)
        values = table[field].dropna()
        if spaced(field, values).kind == "log":
            ax.set_xscale("log")
        elif (values % 1 == 0).all():
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    handles, labels = drawn.axes[0].get_legend_handles_labels()
    legend = drawn.legend(
        handles, labels, loc="outside lower center", ncols=min(len(labels), 4), frameon=False, fontsize=9
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    return drawn
