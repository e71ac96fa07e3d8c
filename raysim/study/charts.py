"""The figures of a study."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from raysim.report import svg
from raysim.report.svg import PANEL, Chart, Figure, Style
from raysim.report.svg.styles import COLOURS, SHAPES
from raysim.study.predictors import ALL

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

PANELS = (
    ("r2_alone", "R² of the metric alone"),
    ("importance", "importance among all"),
    ("permutation", "R² lost when it is shuffled"),
)


def figures(table: pd.DataFrame, shares: pd.DataFrame, metrics: Sequence[str]) -> Iterator[Figure]:
    """Yield the plots of a study: metrics of label skew against alpha, how well each predicts alpha, and numbers of
    clusters (if any).
    """
    yield metrics_by_alpha(table, metrics)
    yield importances(shares)
    if "clusters" in table:
        yield clusters(table)


def metrics_by_alpha(table: pd.DataFrame, metrics: Sequence[str]) -> Figure:
    """Plot each metric against alpha in a panel of its own, with a line for each number of clients.

    Lines are means over seeds, with a band from the lowest to the highest value.
    """
    groups = list(table[table["feasible"]].groupby("clients", sort=True))
    styles = [Style((9 - k) % COLOURS, SHAPES[k % len(SHAPES)]) for k in range(len(groups))]
    charts = []
    for metric in metrics:
        over = [group.groupby("alpha")[metric].agg(["mean", "min", "max"]).sort_index() for _, group in groups]
        x = svg.log("alpha (left: clients differ more)", np.concatenate([each.index for each in over]), count=5)
        name = NAMES.get(metric, metric)
        y = svg.linear("", np.concatenate([each["max"] for each in over]), include=(0.0,), within=(0.0, np.inf))
        description = f"{name} against alpha, a line for each number of clients."
        chart = Chart(x, y, name=f"metric-{metric}", title=name, description=description, width=PANEL, height=210)
        for each, style in zip(over, styles, strict=True):
            chart.band(each.index, each["min"], each["max"], style)
            chart.line(each.index, each["mean"], style)
            chart.dots(each.index, each["mean"], style, size=3.0)
        charts.append(chart)
    caption = (
        "Lines are means over seeds; bands reach from the lowest to the highest value. A metric that predicts the skew "
        "well is steep and monotone, with narrow bands."
    )
    entries = [(f"{clients} clients", style) for (clients, _), style in zip(groups, styles, strict=True)]
    return svg.figure("metrics", "Metrics by alpha", charts, caption, svg.legend(entries, lines=True))


def importances(shares: pd.DataFrame) -> Figure:
    """Plot for each metric and model R² of the metric alone, the metric's importance, and the R² lost if the metric is
    shuffled.

    The metric that alone predicts best is on top.
    """
    rows = shares[shares["clients"] == ALL]
    models = [str(model) for model in dict.fromkeys(rows["model"])]
    order = rows.groupby("metric", sort=False)["r2_alone"].mean().sort_values(ascending=False, kind="stable").index
    names = [NAMES.get(str(metric), str(metric)) for metric in order]
    charts = []
    for column, title in PANELS:
        values = rows.pivot(index="metric", columns="model", values=column).loc[order, models].to_numpy(float)
        charts.append(
            svg.heat_map(
                names,
                [MODELS.get(model, model) for model in models],
                values,
                name=f"shares-{column}",
                title=title,
                description=f"{title}, of each metric by each model.",
                high=1.0,
            )
        )
    together = rows.groupby("model", sort=False)["r2"].first()
    description = ", ".join(f"{MODELS.get(str(model), str(model))} {value:.2f}" for model, value in together.items())
    caption = (
        "Over all partitions. The first panel has R² of each metric alone. The others are for models of all metrics: "
        "the importance of each metric, which metrics with the same information share, and the R² lost if the metric "
        f"is shuffled. R² of all metrics together: {description}."
    )
    return svg.figure("shares", "What predicts the skew", charts, caption)


def clusters(table: pd.DataFrame) -> Figure:
    """Plot the strategy's number of clusters, averaged over seeds, for each number of clients and alpha."""
    alphas, sizes = sorted(table["alpha"].unique()), sorted(table["clients"].unique())
    means, lows, highs = (
        table.pivot_table(index="clients", columns="alpha", values="clusters", aggfunc=how, dropna=False)
        .reindex(index=sizes, columns=alphas)
        .to_numpy(float)
        for how in ("mean", "min", "max")
    )
    texts = [["–" if np.isnan(mean) else f"{mean:.3g}" for mean in row] for row in means]
    cells = [
        f"{size} clients, alpha {alpha:g}: {_with_limits(means[i, j], lows[i, j], highs[i, j])}"
        for i, size in enumerate(sizes)
        for j, alpha in enumerate(alphas)
    ]
    chart = svg.heat_map(
        [str(size) for size in sizes],
        [f"{alpha:g}" for alpha in alphas],
        np.log(means),
        name="clusters",
        description=f"The mean number of clusters and its range. {'; '.join(cells)}.",
        texts=texts,
        row_title="clients",
        column_title="alpha (left: clients differ more)",
    )
    caption = (
        "Numbers of clusters follow from the clients' label counts alone and are means over seeds. A dash: the "
        "partition was never feasible. study.csv has the number of each partition."
    )
    return svg.figure("clusters", "Clusters chosen", [chart], caption)


def _with_limits(mean: float, low: float, high: float) -> str:
    if np.isnan(mean):
        return "–"
    return f"{mean:.3g}" + (f" ({low:.0f}–{high:.0f})" if high > low else "")
