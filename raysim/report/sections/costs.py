"""The section on costs of strategies: bytes as bars, and the main metric by the bytes exchanged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from raysim.engine.job import Result
from raysim.metrics.labels import reporting
from raysim.report import svg
from raysim.report.figures.models import Looks, Names
from raysim.report.naming import Key, number, of_strategy, short, size
from raysim.report.pages.section import Material, Section, Values
from raysim.report.tables import KEYS

COSTS = {"bytes_down": "Download, all rounds", "bytes_up": "Upload, all rounds", "setup": "Set-up, both ways"}

MEGABYTE = 1e6


def bars(frame: pd.DataFrame, names: Names, looks: Looks) -> list[svg.Figure]:
    """Plot the bytes of each strategy (means over seeds) as bars, by download, upload and set-up."""
    if not {"bytes_down", "bytes_up", "bytes_setup_down", "bytes_setup_up"} <= set(frame):
        return []
    means = frame.assign(setup=frame["bytes_setup_down"] + frame["bytes_setup_up"]).drop_duplicates(
        ["strategy", "seed"]
    )
    table = means.groupby("strategy", sort=False)[list(COSTS)].mean()
    keys: list[Key] = [next(key for key in names if key[0] == label) for label in table.index]
    words = [of_strategy(names[key]) for key in keys]
    charts = []
    for column, heading in COSTS.items():
        values = table[column].to_numpy(float) / MEGABYTE
        texts = [size(value * MEGABYTE) for value in values]
        chart = svg.Chart(
            svg.linear("megabytes", values, include=(0.0,), within=(0.0, np.inf), count=3, margin=0.3),
            svg.names("", words),
            name=f"cost-{column}",
            title=heading,
            description="; ".join(f"{name} {text}" for name, text in zip(words, texts, strict=True)) + ".",
            width=1.35 * svg.PANEL,
            height=24.0 * len(keys) + 74,
            gridlines="x",
        )
        for i, (key, value, text) in enumerate(zip(keys, values, texts, strict=True)):
            chart.bars([0.0], [value], [i], looks[key])
            chart.text(value, i, text, dx=5.0)
        charts.append(chart)
    return [
        svg.figure(
            "costs",
            "What each strategy costs",
            charts,
            "Bytes of all hospitals and rounds, means over seeds. A number takes 4 bytes.",
        )
    ]


def bytes_by_round(results: Sequence[Result]) -> pd.DataFrame:
    """Return the megabytes exchanged so far and the main metric (AUROC or MAE) by strategy, model, seed and evaluated
    round.
    """
    rows = []
    for result in results:
        moved = result.outcome.setup.both
        for row in result.outcome.rounds:
            moved += (row.bytes_down + row.bytes_up) if row.round > 0 else 0
            for model, metrics in row.metrics.items():
                rows.append(
                    {
                        "strategy": result.label,
                        "model": model,
                        "seed": result.seed,
                        "round": row.round,
                        "megabytes": moved / MEGABYTE,
                        str(result.federation.task.headline): metrics[result.federation.task.headline],
                    }
                )
    return pd.DataFrame(rows)


def by_bytes(results: Sequence[Result], names: Names, looks: Looks) -> list[svg.Figure]:
    """Plot the main metric by the bytes exchanged so far.

    The list is empty if no model has two evaluated rounds with traffic.
    """
    table = bytes_by_round(results)
    if table.empty:
        return []
    kind = reporting(table)
    moved = table[np.isfinite(table[kind.headline].astype(float)) & (table["megabytes"] > 0)]
    lines, models = [], 0
    for key, group in moved.groupby(KEYS, sort=False):
        model_key = (str(key[0]), str(key[1]))
        means = group.groupby("round")[["megabytes", kind.headline]].mean().sort_index()
        models += model_key in names
        if model_key in names and len(means) > 1:
            lines.append((model_key, means["megabytes"].to_numpy(float), means[kind.headline].to_numpy(float)))
    if not lines:
        return []
    digits = kind.decimals([values[-1] for *_, values in lines])
    description = "; ".join(
        f"{names[model_key]}: {number(values[-1], digits)} after {size(x[-1] * MEGABYTE)}"
        for model_key, x, values in lines
    )
    chart = svg.Chart(
        svg.log("megabytes exchanged, set-up included", np.concatenate([x for _, x, _ in lines])),
        svg.linear(f"mean {kind.title} over hospitals", np.concatenate([v for *_, v in lines])),
        name="by-bytes",
        description=f"Line plot. {description}.",
        right=svg.ENDS,
    )
    for model_key, x, values in lines:
        chart.marked_line(x, values, looks[model_key])
    chart.ends([(short(names[model_key]), values[-1], looks[model_key]) for model_key, _, values in lines])
    return [
        svg.figure(
            "by-bytes",
            f"Mean {kind.title} by bytes",
            [chart],
            f"Mean {kind.title} against the bytes that all hospitals have received and sent so far; means over seeds."
            + (" Strategies that were evaluated once have no line." if len(lines) < models else ""),
            svg.legend([(names[model_key], looks[model_key]) for model_key, *_ in lines], lines=True),
        )
    ]


def values(material: Material) -> Values:
    """Return the figures of the section on costs."""
    titles, looks = material.titles, material.looks
    plots = [*bars(material.per_seed, titles, looks), *by_bytes(material.results, titles, looks)]
    return {"costs": [*plots, *material.supplement.cost]}


SECTION = Section(
    "cost",
    "Cost",
    {"comparison": "{{ parts.gallery(costs) }}\n"},
    values,
    place=70,
    visible=lambda values: values.get("costs"),
)
