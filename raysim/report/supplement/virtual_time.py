"""A metric by virtual time and by bytes: a figure, and the printed table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.table import Table

from raysim.metrics.labels import TaskKind
from raysim.report import svg
from raysim.report.naming import short
from raysim.report.tables import KEYS, labels
from raysim.report.terminal.tables import titled

AXES = (("virtual_seconds", 1.0, "virtual time, seconds"), ("bytes", 1e6, "megabytes exchanged"))
"""For each horizontal axis: the column of its values, the divisor of the values, and the title."""

POINTS = 400
"""The number of positions on the horizontal axis at which the curves of several seeds are averaged."""


def plots(
    table: pd.DataFrame, kind: TaskKind, target: float | None = None, titles: Mapping[str, str] | None = None
) -> list[svg.Figure]:
    """Plot a metric by virtual time and by bytes exchanged; empty if no value is defined.

    ``table`` has the columns ``strategy, model, seed, virtual_seconds, bytes, value``, where ``value`` is the metric.
    ``kind`` is the kind of the predicted label; a line is drawn at the value ``target``; ``titles`` are display names
    by strategy.
    """
    defined = table[table["value"].notna()]
    if defined.empty:
        return []
    keys = [(str(a), str(b)) for a, b in defined[KEYS].drop_duplicates().to_numpy()]
    model_names = labels(pd.DataFrame(keys, columns=KEYS))
    names = {
        key: (titles or {}).get(key[0], key[0]) + label.removeprefix(key[0])
        for key, label in zip(keys, model_names, strict=True)
    }
    looks, charts = svg.styles(keys), []
    for column, unit, words in AXES:
        lines = []
        for key, group in defined.groupby(KEYS, sort=False):
            x, mean, band = averaged([rows for _, rows in group.groupby("seed")], column)
            lines.append(((str(key[0]), str(key[1])), x / unit, mean, np.nan_to_num(band)))
        digits = kind.decimals([mean[-1] for _, _, mean, _ in lines])
        description = "; ".join(
            f"{names[model_key]} ends at {mean[-1]:.{digits}f} after {x[-1]:,.3g}" for model_key, x, mean, _ in lines
        )
        chart = svg.Chart(
            svg.linear(words, np.concatenate([x for _, x, *_ in lines]), margin=0.01),
            svg.linear(
                f"mean {kind.title} over hospitals",
                np.concatenate([mean + sign * band for *_, mean, band in lines for sign in (-1, 1)]),
                include=() if target is None else (target,),
            ),
            name=f"virtual-time-{column}",
            description=f"Line plot of mean {kind.title} by {words}. {description}.",
            height=260.0,
            right=svg.ENDS,
        )
        if target is not None:
            chart.rule(y=target, text="target", dashed=True)
        for model_key, x, mean, band in lines:
            chart.band(x, mean - band, mean + band, looks[model_key], steps=True)
            chart.marked_line(x, mean, looks[model_key], steps=True)
        chart.ends([(short(names[model_key]), mean[-1], looks[model_key]) for model_key, _, mean, _ in lines])
        charts.append(chart)
    return [
        svg.figure(
            "virtual-time",
            f"{kind.title} by virtual time and traffic",
            charts,
            f"Mean {kind.title} over hospitals against simulated time, and against the bytes received and sent so far. "
            "Lines are means over seeds and begin when every seed has a model; bands are one standard deviation. "
            "Pooled training has no simulated time and is left out."
            + ("" if target is None else " The dashed line is the target."),
            svg.legend([(names[key], looks[key]) for key in keys], lines=True),
        )
    ]


def printed(table: pd.DataFrame, target: Mapping[str, float]) -> Table | None:
    """Return the table of virtual times that ``compare`` prints; None if no virtual clock was simulated.

    ``table`` is ``comparison.csv``; ``target`` has the value to reach for each metric. Times until a target are means
    over the seeds that reached it.
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


def averaged(
    seeds: Sequence[pd.DataFrame], column: str
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Average the curves of several seeds. Return positions, means, and standard deviations (NaN for one seed).

    ``column`` is the horizontal axis: virtual time or bytes. Between two evaluations, a run has the earlier value.
    """
    curves = [(seed_rows[column].to_numpy(float), seed_rows["value"].to_numpy(float)) for seed_rows in seeds]
    if len(curves) == 1:
        return *curves[0], np.full(len(curves[0][0]), np.nan)
    start, stop = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    x = np.linspace(start, max(start, stop), POINTS)
    values = np.stack([y[np.searchsorted(seed_rows, x, side="right") - 1] for seed_rows, y in curves])
    return x, values.mean(axis=0), values.std(axis=0, ddof=1)
