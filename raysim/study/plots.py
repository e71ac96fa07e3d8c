"""Pictures of a study, from the frames of :mod:`raysim.study.grid` and :mod:`raysim.study.predictors`.

Figures are made and saved as :mod:`raysim.report.plots.canvas` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from raysim.report.plots.canvas import GREY, INK, MUTED, PALETTE, plain

MARKS = ("o", "s", "^", "D", "v", "P")

NAMES = {
    "wpsi": "WPSI",
    "hellinger": "Hellinger",
    "jensen_shannon": "Jensen-Shannon",
    "emd_tv": "EMD, total variation",
    "emd_pooled": "EMD to the pool",
    "emd_l1": "EMD to the pool, L1",
    "emd_ordinal": "EMD, ordinal",
    "emd_fedartml": "EMD as FedArtML",
}
MODELS = {"linear": "linear", "random_forest": "random forest", "gradient_boosting": "gradient boosting"}


def all_figures(table: pd.DataFrame, shares: pd.DataFrame, metrics: Sequence[str]) -> Iterator[tuple[str, Figure]]:
    """A name and a picture: metrics by alpha, importances, and clusters where some were chosen."""
    yield "metrics", metrics_by_alpha(table, metrics)
    yield "importances", importances(shares)
    if "clusters" in table:
        yield "clusters", clusters(table)


def metrics_by_alpha(table: pd.DataFrame, metrics: Sequence[str]) -> Figure:
    """A panel for each metric: its mean over seeds against alpha (logarithmic), a line for each number of clients.

    ``table`` has ``clients, alpha, feasible`` and the metrics. Bands reach from the lowest to the highest seed.
    """
    feasible = table[table["feasible"]]
    columns = min(len(metrics), 4)
    rows = -(-len(metrics) // columns)
    figure = Figure(figsize=(2.75 * columns + 0.4, 2.5 * rows + 0.8), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, squeeze=False).ravel()
    groups = list(feasible.groupby("clients", sort=True))
    for k, ax in enumerate(axes):
        if k >= len(metrics):
            ax.set_visible(False)
            continue
        plain(ax)
        ax.set_title(NAMES.get(metrics[k], metrics[k]), fontsize=10, loc="left", color=INK, parse_math=False)
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(numticks=8))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
        if k + columns >= len(metrics):
            ax.tick_params(labelbottom=True)
        for i, (_, group) in enumerate(groups):
            by_alpha = group.groupby("alpha")[metrics[k]].agg(["mean", "min", "max"]).sort_index()
            x = by_alpha.index.to_numpy(float)
            colour = PALETTE[i % len(PALETTE)]
            ax.plot(x, by_alpha["mean"], color=colour, marker=MARKS[i % len(MARKS)], ms=4, lw=1.5)
            ax.fill_between(x, by_alpha["min"], by_alpha["max"], color=colour, alpha=0.15, lw=0)
        ax.set_ylim(bottom=0)
    figure.supxlabel("alpha (logarithmic): left is unlike, right is alike", fontsize=10, color=INK)
    marks = [
        Line2D([], [], color=PALETTE[i % len(PALETTE)], marker=MARKS[i % len(MARKS)], ms=5, label=f"{clients} clients")
        for i, (clients, _) in enumerate(groups)
    ]
    figure.legend(handles=marks, loc="outside upper left", ncols=len(marks), frameon=False, fontsize=9)
    return figure


def importances(shares: pd.DataFrame, clients: object = "all") -> Figure:
    """Bars of every metric: how well it predicts alone, the model's own importance, and what shuffling it costs.

    ``shares`` is what :func:`raysim.study.predictors.importances` returns. Metrics are in the order of their mean R²
    alone.
    """
    shown = shares[shares["clients"] == clients]
    models = list(dict.fromkeys(shown["model"]))
    order = shown.groupby("metric", sort=False)["r2_alone"].mean().sort_values(kind="stable").index
    figure = Figure(figsize=(10.2, 0.55 * len(order) + 1.7), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    height = 0.8 / len(models)
    panels = (
        ("r2_alone", "R² of the metric alone"),
        ("importance", "importance among all"),
        ("permutation", "R² lost when it is shuffled"),
    )
    for ax, (column, title) in zip(axes, panels, strict=True):
        plain(ax)
        ax.grid(visible=False, axis="y")
        ax.set_title(title, fontsize=10, loc="left", color=INK)
        for m, model in enumerate(models):
            values = shown[shown["model"] == model].set_index("metric").loc[order, column].to_numpy(float)
            at = np.arange(len(order)) + 0.4 - height * (m + 0.5)
            ax.barh(at, values, height * 0.92, color=PALETTE[m % len(PALETTE)], label=MODELS.get(model, model))
        ax.axvline(0, color=GREY, lw=0.8)
    axes[0].set_xlim(min(0.0, max(-1.0, float(shown["r2_alone"].min()))), 1.0)
    axes[0].set_yticks(np.arange(len(order)), [NAMES.get(str(name), str(name)) for name in order], fontsize=9.5)
    for ax in axes:
        ax.tick_params(axis="y", colors=INK, length=0)
        ax.xaxis.set_major_locator(MaxNLocator(4))
    together = shown.groupby("model", sort=False)["r2"].first()
    text = ", ".join(f"{MODELS.get(str(model), str(model))} {value:.2f}" for model, value in together.items())
    figure.supxlabel(f"R² of all metrics together: {text}", fontsize=9.5, color=MUTED)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper left", ncols=len(models), frameon=False, fontsize=9)
    return figure


def clusters(table: pd.DataFrame) -> Figure:
    """How many clusters were chosen, by number of clients and alpha: the mean over seeds, and its range below it.

    ``table`` has ``clients, alpha, feasible, clusters``. A partition that was never feasible is a dash.
    """
    alphas, sizes = sorted(table["alpha"].unique()), sorted(table["clients"].unique())
    means, lows, highs = (
        table.pivot_table(index="clients", columns="alpha", values="clusters", aggfunc=how, dropna=False)
        .reindex(index=sizes, columns=alphas)
        .to_numpy(float)
        for how in ("mean", "min", "max")
    )
    figure = Figure(figsize=(0.8 * len(alphas) + 2.0, 0.72 * len(sizes) + 1.5), layout="constrained")
    ax = figure.subplots()
    top = 1.15 * float(np.log(max(np.nanmax(means), 8.0)))
    ax.imshow(np.log(means), cmap="Blues", aspect="auto", vmin=0.0, vmax=top)
    for i, j in np.ndindex(means.shape):
        if np.isnan(means[i, j]):
            ax.text(j, i, "–", ha="center", va="center", color=MUTED, fontsize=10)
            continue
        ink = "white" if np.log(means[i, j]) > 0.6 * top else INK
        span = f"{lows[i, j]:.0f}" + (f" to {highs[i, j]:.0f}" if highs[i, j] > lows[i, j] else "")
        ax.text(j, i - 0.1, f"{means[i, j]:.3g}", ha="center", va="center", color=ink, fontsize=11)
        ax.text(j, i + 0.2, span, ha="center", va="center", color=ink, fontsize=8)
    ax.set_xticks(range(len(alphas)), [f"{alpha:g}" for alpha in alphas])
    ax.set_yticks(range(len(sizes)), [str(size) for size in sizes])
    ax.tick_params(length=0, labelsize=9.5, colors=INK)
    ax.spines[:].set_visible(False)
    ax.set_xlabel("alpha: left is unlike, right is alike", fontsize=10, color=INK)
    ax.set_ylabel("clients", fontsize=10, color=INK)
    ax.set_title("clusters chosen: mean over seeds, and range", fontsize=10, loc="left", color=INK)
    return figure
