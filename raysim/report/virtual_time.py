"""How good models are after so much virtual time, and after so many bytes: a picture, and what is printed.

The figure is made and saved as in :mod:`raysim.report.plots`: nothing global is touched and no display is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.table import Table

from raysim.report.drawn import Drawn
from raysim.report.plots import FAINT, INK, MUTED, PALETTE, STROKES
from raysim.report.tables import KEYS, labels
from raysim.report.terminal import titled

AXES = (("virtual_seconds", 1.0, "virtual time, seconds"), ("bytes", 1e6, "megabytes exchanged"))
"""Columns, their units and the words for them."""

POINTS = 400
"""At so many moments the curves of several seeds are averaged."""


def drawn(table: pd.DataFrame, title: str, target: float | None = None) -> list[Drawn]:
    """The picture for a page, from ``strategy, model, seed, virtual_seconds, bytes, value``; none without rows.

    ``title`` names the metric; ``target`` is drawn as a line.
    """
    defined = table[table["value"].notna()]
    if defined.empty:
        return []
    ends = defined.groupby([*KEYS, "seed"], sort=False).last().groupby(KEYS, sort=False).mean().reset_index()
    said = "; ".join(
        f"{name} ends at {value:.3f} after {seconds:,.0f} s"
        for name, value, seconds in zip(labels(ends), ends["value"], ends["virtual_seconds"], strict=True)
    )
    return [
        Drawn(
            name="virtual_time",
            title=f"{title} by virtual time and traffic",
            figure=time_curves(defined, title, target),
            caption=f"Mean {title} over hospitals after so much time of the simulated hospitals, and after so many "
            "bytes down and up. Over several seeds, the mean from when all have a model; bands are one deviation. "
            "Training on pooled rows has no such time and is not shown."
            + ("" if target is None else " The dotted line is the target."),
            alt=f"Line plots of mean {title} by virtual time and by bytes. {said}.",
        )
    ]


def printed(table: pd.DataFrame, target: Mapping[str, float]) -> Table | None:
    """What ``compare`` prints of ``comparison.csv``'s virtual time; None where no time passed.

    ``target``: the metrics to reach. Means are over the seeds that reached them, and how many did stands beside.
    """
    if "virtual_seconds" not in table or not table["virtual_seconds"].notna().any():
        return None
    printed = titled("virtual time of the simulated hospitals")
    printed.add_column("strategy", no_wrap=True)
    for heading in ("seconds", *(f"until {metric} {value:g}" for metric, value in target.items())):
        printed.add_column(heading, justify="right")
    for row in table.drop_duplicates("strategy").to_dict("records"):
        cells = [f"{row['virtual_seconds']:,.0f}" if np.isfinite(row["virtual_seconds"]) else "undefined"]
        for metric in target:
            seconds, moved, share = (row[f"{metric}_target_{name}"] for name in ("seconds", "bytes", "reached"))
            reached = f"{seconds:,.0f} s, {moved / 1e6:,.1f} MB, " if np.isfinite(seconds) else ""
            cells.append(f"{reached}{share * row['seeds']:.0f} of {row['seeds']:.0f} seeds")
        printed.add_row(str(row["strategy"]) + (" *" if row["yardstick"] else ""), *cells)
    return printed


def time_curves(table: pd.DataFrame, title: str, target: float | None = None) -> Figure:
    """A panel for time and one for bytes, a line a strategy and model."""
    groups = list(table.groupby(KEYS, sort=False))
    names = labels(pd.DataFrame([key for key, _ in groups], columns=KEYS))
    figure = Figure(figsize=(9.2, max(4.4, 0.2 * len(names) + 0.8)))  # the legend has a line for each
    left: Axes = figure.add_axes((0.075, 0.13, 0.345, 0.83))
    right: Axes = figure.add_axes((0.445, 0.13, 0.345, 0.83), sharey=left)
    for ax, (column, unit, words) in zip((left, right), AXES, strict=True):
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(color=FAINT, lw=0.7)
        ax.set_axisbelow(True)
        ax.tick_params(labelsize=9, colors=MUTED)
        ax.set_xlabel(words, fontsize=10, color=INK)
        if target is not None:
            ax.axhline(target, color=MUTED, lw=1.1, ls=":")
        for k, (_, group) in enumerate(groups):
            colour, stroke = PALETTE[k % len(PALETTE)], STROKES[k // len(PALETTE) % len(STROKES)]
            x, mean, band = averaged([seed_rows for _, seed_rows in group.groupby("seed")], column)
            x = x / unit
            marker = "o" if len(x) < 2 else ""
            ax.plot(x, mean, color=colour, ls=stroke, lw=1.8, drawstyle="steps-post", marker=marker, label=names[k])
            if np.isfinite(band).any():
                ax.fill_between(x, mean - band, mean + band, color=colour, alpha=0.13, lw=0, step="post")
    right.tick_params(labelleft=False)
    left.set_ylabel(f"mean {title} over hospitals", fontsize=10, color=INK)
    legend = right.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), frameon=False, fontsize=9, labelcolor=INK)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def averaged(
    seeds: Sequence[pd.DataFrame], column: str
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Where the curve of several seeds is drawn, its mean there, and its deviation (NaN for one seed).

    Between two evaluations a run has the model of the first, so that its value stands until the next.
    """
    curves = [(seed_rows[column].to_numpy(float), seed_rows["value"].to_numpy(float)) for seed_rows in seeds]
    if len(curves) == 1:
        return *curves[0], np.full(len(curves[0][0]), np.nan)
    start, stop = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    x = np.linspace(start, max(start, stop), POINTS)
    values = np.stack([y[np.searchsorted(seed_rows, x, side="right") - 1] for seed_rows, y in curves])
    return x, values.mean(axis=0), values.std(axis=0, ddof=1)
