"""Clusters of patients in a comparison: the table of FedGMC's protocol, and the sizes of clusters by hospital.

The protocol (Ye et al.: *FedGMC*, Table 4) reports for each strategy:

- the mean of each metric, with a 95 % interval over folds or seeds;
- at how many hospitals the metric is strictly better than under the reference strategy;
- how far the most important features of the clusters' models overlap.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table

from raysim.metrics.labels import reporting
from raysim.report import svg
from raysim.report.tables import KEYS, baseline_of, labels, margins, read_csv
from raysim.report.terminal.tables import titled

SHADES = (0.12, 0.45, 0.25)
"""How dark stacked areas are (0 to 1), from the bottom up; repeated if there are more areas."""

LABELLED = 0.07
"""An area is labelled only if its share is larger than this at some hospital."""


def protocol(
    per_seed: pd.DataFrame, hospitals: pd.DataFrame, reference: str, overlap: pd.DataFrame | None
) -> pd.DataFrame:
    """Return one row for each strategy and model, with four columns for each metric.

    - ``<metric>``: the mean over seeds. ``<metric>_margin``: half the width of the mean's 95 % interval.
    - ``<metric>_improved``, ``<metric>_hospitals``: the two results of :func:`improved` against the strategy
      ``reference``; absent if ``reference`` was not run.

    If ``overlap`` is given, columns ``overlap_<k>`` follow: how far the k most important features of two clusters'
    models overlap. ``overlap`` has the rows of ``feature_overlap.csv``; the other tables are as in
    :mod:`raysim.report.tables`.
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


def improved(
    hospitals: pd.DataFrame, candidate: tuple[str, str], against: tuple[str, str], figure: str
) -> tuple[int, int]:
    """Count the hospitals where a metric is strictly better under the model ``candidate`` than under ``against``.

    ``figure`` names the metric, which is averaged over the seeds in which it is defined under both models. Also returns
    the number of hospitals with at least one such seed.
    """
    sides = []
    for strategy, model in (candidate, against):
        side = hospitals[(hospitals["strategy"] == strategy) & (hospitals["model"] == model)]
        sides.append(side[["hospital", "seed", figure]].dropna())
    pairs = sides[0].merge(sides[1], on=["hospital", "seed"], suffixes=("", "_reference"))
    means = pairs.groupby("hospital")[[figure, f"{figure}_reference"]].mean()
    gain = means[figure] - means[f"{figure}_reference"]
    better = gain > 0 if reporting(hospitals).larger else gain < 0
    return int(better.sum()), len(means)


def printed(folder: Path, reference: str) -> Table | None:
    """Return the table that ``compare`` prints from ``protocol.csv`` in ``folder``; None without the file."""
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
    kind = reporting(protocol)
    digits = kind.decimals(protocol[kind.headline]) + 1
    for name, row in zip(labels(protocol), protocol.to_dict("records"), strict=True):
        cells = []
        for figure in figures:
            margin = f" ±{row[f'{figure}_margin']:.{digits}f}" if np.isfinite(row[f"{figure}_margin"]) else ""
            cells += [f"{row[figure]:.{digits}f}{margin}", _improved(row, figure)]
        table.add_row(name, *cells, *("" if np.isnan(row[column]) else f"{row[column]:.2f}" for column in tops))
    if tops:
        table.caption = "top k: overlap of the k features with the largest coefficients between models of two clusters"
        table.caption_justify = "left"
    return table


def plot(composition: pd.DataFrame, titles: Mapping[str, str] | None = None) -> svg.Figure:
    """Plot the share of each hospital's training rows in each patient cluster, in each strategy's first seed.

    ``composition`` has the rows of ``patient_clusters.csv`` of all runs: ``strategy, seed, hospital, cluster,
    n_train``. ``titles`` are display names by strategy.
    """
    charts: list[svg.Chart] = []
    for strategy, group in composition.groupby("strategy", sort=False):
        first = group[group["seed"] == group["seed"].iloc[0]]
        wide = first.pivot(index="hospital", columns="cluster", values="n_train")
        sizes = wide.sum(axis=1)
        wide = wide.loc[sizes[sizes > 0].sort_values(ascending=False, kind="stable").index]
        name = (titles or {}).get(str(strategy), str(strategy))
        charts.append(_panel(name, wide, f"patient-clusters-{len(charts)}"))
    return svg.figure(
        "patient-clusters",
        "Clusters of patients",
        charts,
        "The share of each hospital's training rows in each cluster, from the largest hospital to the smallest. "
        "Clusters are from the first seed or fold; their numbers cannot be compared between strategies. "
        "patient_clusters.csv has the shares of every hospital.",
    )


def _panel(title: str, rows: pd.DataFrame, name: str) -> svg.Chart:
    counts = rows.to_numpy(float)
    shares = counts / counts.sum(axis=1, keepdims=True)
    ends = np.hstack([np.zeros((len(shares), 1)), shares.cumsum(axis=1)])
    edges = np.repeat(np.arange(len(shares) + 1) + 0.5, 2)[1:-1]
    together = counts.sum(axis=0) / counts.sum()
    description = ", ".join(f"{cluster} {share:.0%}" for cluster, share in zip(rows.columns, together, strict=True))
    chart = svg.Chart(
        svg.linear("hospitals, the largest first", edges, margin=0.0, whole=True),
        svg.share("share of training rows"),
        name=name,
        title=title,
        description=f"Shares of clusters by hospital, stacked. Over all hospitals: {description}.",
        height=220.0,
        gridlines="",
    )
    for k, cluster in enumerate(rows.columns):
        low, high = (np.repeat(ends[:, at], 2) for at in (k, k + 1))
        chart.area(edges, low, high, shade=SHADES[k % len(SHADES)])
        widest = int(shares[:, k].argmax())
        if shares[widest, k] > LABELLED:
            chart.text(widest + 1, float(ends[widest, [k, k + 1]].mean()), str(cluster), anchor="middle")
    return chart


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
