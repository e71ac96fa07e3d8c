"""Clusters of patients in a comparison: FedGMC's table of the protocol, and who is in which cluster where.

The protocol (FedGMC, Table 4) tells of each strategy the mean of its figures with a 95 % interval over folds or seeds,
and how many hospitals it serves strictly better than the reference does; beside them, how much the models of clusters
have in common.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.table import Table

from raysim.metrics.labels import reporting
from raysim.report.drawn import Drawn
from raysim.report.plots import INK, MUTED, PALETTE, plain
from raysim.report.tables import KEYS, baseline_of, labels, margins, read_csv
from raysim.report.terminal import titled

HATCHES = ("", "///", "...", "\\\\\\", "xxx", "---", "ooo", "+++")
"""A pattern for each cluster, so that colour is never the only carrier of a meaning."""

NAMED = 40
"""With more hospitals their names do not fit below their bars."""

BARS = 100
"""With more hospitals clusters are areas: a bar takes milliseconds to draw, and would be too thin for its pattern."""


def protocol(
    per_seed: pd.DataFrame, hospitals: pd.DataFrame, reference: str, overlap: pd.DataFrame | None
) -> pd.DataFrame:
    """A row a strategy and model: each figure with ``_margin``, ``_improved`` and ``_hospitals``, then ``overlap_<k>``.

    ``per_seed`` and ``hospitals`` as in :mod:`raysim.report.tables`, ``overlap`` stacked ``feature_overlap.csv``.
    ``_margin`` is half of the 95 % interval of the mean over seeds; ``_improved`` how many of ``_hospitals`` with a
    defined figure are strictly better than under the reference, by means over the seeds in which both are defined.
    """
    groups, figures, against = per_seed.groupby(KEYS, sort=False), _figures(per_seed), baseline_of(per_seed, reference)
    table = groups[["yardstick"]].first().join(groups[figures].mean())
    table = table.join(margins(per_seed)[figures].add_suffix("_margin")).reset_index()
    if against is not None:
        keys = list(zip(table["strategy"], table["model"], strict=True))
        for figure in figures:
            counts = [improved(hospitals, key, against, figure) for key in keys]
            table[f"{figure}_improved"], table[f"{figure}_hospitals"] = zip(*counts, strict=True)
    if overlap is not None:
        means = overlap.groupby(["strategy", "top"], sort=False)["overlap"].mean().unstack()
        table = table.join(means.add_prefix("overlap_"), on="strategy")
    return table


def improved(hospitals: pd.DataFrame, own: tuple[str, str], against: tuple[str, str], figure: str) -> tuple[int, int]:
    """How many hospitals are strictly better by ``figure`` under a strategy and model than ``against``; out of these.

    Hospitals for which the figure is defined under both in some seed.
    """
    sides = []
    for strategy, model in (own, against):
        side = hospitals[(hospitals["strategy"] == strategy) & (hospitals["model"] == model)]
        sides.append(side[["hospital", "seed", figure]].dropna())
    pairs = sides[0].merge(sides[1], on=["hospital", "seed"], suffixes=("", "_reference"))
    means = pairs.groupby("hospital")[[figure, f"{figure}_reference"]].mean()
    gain = means[figure] - means[f"{figure}_reference"]
    better = gain > 0 if reporting(hospitals).larger else gain < 0
    return int(better.sum()), len(means)


def printed(folder: Path, reference: str) -> Table | None:
    """What ``compare`` prints of the ``protocol.csv`` in its folder; None where there is none."""
    if not (folder / "protocol.csv").exists():
        return None
    protocol = read_csv(folder / "protocol.csv")
    table = titled(f"mean ± 95 % interval, and hospitals improved over {reference}")
    table.add_column("strategy", no_wrap=True)
    figures = _figures(protocol)
    for figure in figures:
        table.add_column(_title(protocol, figure), justify="right")
        table.add_column("improved", justify="right")
    tops = [column for column in map(str, protocol) if column.startswith("overlap_")]
    for column in tops:
        table.add_column(f"top {column.removeprefix('overlap_')}", justify="right")
    for name, row in zip(labels(protocol), protocol.to_dict("records"), strict=True):
        cells = []
        for figure in figures:
            margin = f" ±{row[f'{figure}_margin']:.4f}" if np.isfinite(row[f"{figure}_margin"]) else ""
            cells += [f"{row[figure]:.4f}{margin}", _improved(row, figure)]
        table.add_row(name, *cells, *("" if np.isnan(row[column]) else f"{row[column]:.2f}" for column in tops))
    if tops:
        table.caption = "top k: share of the k features with the largest coefficients that models of two clusters share"
        table.caption_justify = "left"
    return table


def drawn(composition: pd.DataFrame) -> Drawn:
    """The picture with its words, of stacked ``patient_clusters.csv``; of each strategy its first seed."""
    first = composition[composition["seed"] == composition.groupby("strategy")["seed"].transform("first")]
    said = []
    for strategy, group in first.groupby("strategy", sort=False):
        shares = group.groupby("cluster")["n_train"].sum() / group["n_train"].sum()
        said.append(f"{strategy} {', '.join(f'{share:.0%}' for share in shares)}")
    return Drawn(
        "patient_clusters",
        "Clusters of patients",
        picture(first),
        "The share of each hospital's training rows that is in each cluster, hospitals by size, the largest first. "
        "Clusters are those of the first seed or fold; their numbers mean nothing beyond one strategy.",
        f"Shares of clusters by hospital, stacked. Over all hospitals: {'; '.join(said)}.",
    )


def picture(composition: pd.DataFrame) -> Figure:
    """The share of each hospital's training rows in each cluster: stacked bars, or areas beyond ``BARS`` hospitals.

    There is a panel a strategy. ``composition`` has ``strategy, hospital, cluster, n_train``; hospitals without
    training rows are left out.
    """
    panels = list(composition.groupby("strategy", sort=False))
    hospitals = composition["hospital"].nunique()
    size = min(14.0, max(6.4, 0.34 * hospitals + 2.2)), 2.5 * len(panels) + 0.7
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False).ravel()
    sizes = panels[0][1].groupby("hospital", sort=False)["n_train"].sum()
    order = sizes[sizes > 0].sort_values(ascending=False, kind="stable").index
    for ax, (strategy, group) in zip(axes, panels, strict=True):
        rows = group.pivot(index="hospital", columns="cluster", values="n_train").loc[order].to_numpy(float)
        shares = rows / rows.sum(axis=1, keepdims=True)
        ends = shares.cumsum(axis=1)
        for cluster in range(shares.shape[1]):
            _fill(
                ax,
                ends[:, cluster] - shares[:, cluster],
                ends[:, cluster],
                facecolor=PALETTE[cluster % len(PALETTE)],
                hatch=HATCHES[cluster % len(HATCHES)],
                edgecolor="white",
                linewidth=0.4,
                label=f"cluster {cluster}",
            )
        plain(ax)
        ax.grid(visible=False)
        ax.set_ylim(0, 1)
        ax.set_xlim(-0.6, len(shares) - 0.4)
        ax.set_title(str(strategy), fontsize=10, loc="left", color=INK, parse_math=False)
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
    named = len(order) <= NAMED
    axes[-1].set_xticks(
        range(len(order)) if named else [], order if named else [], rotation=90, fontsize=8, parse_math=False
    )
    figure.supylabel("share of training rows", fontsize=10, color=INK)
    figure.supxlabel("hospital, the largest first", fontsize=9, color=MUTED)
    return figure


def _fill(ax: Axes, low: NDArray[np.float64], high: NDArray[np.float64], **style: Any) -> None:
    """From ``low`` to ``high [H]`` at hospitals 0 to H - 1: a bar each, or one area with their outline."""
    if len(low) <= BARS:
        ax.bar(np.arange(len(low)), high - low, bottom=low, width=0.86, **style)
        return
    edges = np.arange(len(low) + 1) - 0.5
    ax.fill_between(edges, np.append(low, low[-1]), np.append(high, high[-1]), step="post", **style)


def _figures(table: pd.DataFrame) -> list[str]:
    kind = reporting(table)
    return [*(["recall"] if "recall" in table else []), kind.headline]


def _title(table: pd.DataFrame, figure: str) -> str:
    kind = reporting(table)
    return kind.title if figure == kind.headline else figure.capitalize()


def _improved(row: Mapping[Hashable, Any], figure: str) -> str:
    if f"{figure}_improved" not in row:
        return ""
    return f"{row[f'{figure}_improved']} of {row[f'{figure}_hospitals']}"
