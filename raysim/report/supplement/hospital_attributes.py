"""Performance by the kind of hospital: the mean metric by region, teaching status or size."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from raysim.core.words import capitalised, counted
from raysim.data.federation import Federation
from raysim.metrics.labels import reporting
from raysim.report import possible, svg
from raysim.report.figures.models import Looks, Names
from raysim.report.naming import Key, short, with_interval
from raysim.report.panel import Panel, Sent
from raysim.report.tables import KEYS
from raysim.statistics.differences.paired import Limits

FILE = "attributes.csv"

MOST = 12
"""Hospital attributes with more values than this are left out."""

ROW = 20.0


def table(hospitals: pd.DataFrame, federation: Federation, sent: Sent) -> pd.DataFrame:
    """Return each model's mean main metric (AUROC or MAE) by the value of each hospital attribute.

    Columns are ``strategy, model, attribute, value, hospitals``, the metric, ``low`` and ``high``. The mean is over
    seeds, and over hospitals with a defined metric, weighted by test rows. The column ``hospitals`` is the number of
    these hospitals. ``low`` and ``high`` are the mean's 95 % interval for hospitals of the same kind; NaN if there is
    only one hospital. The arguments are as in :meth:`raysim.report.panel.Panel.of`.
    """
    panel = Panel.of(hospitals, sent)
    place = {name: h for h, name in enumerate(federation.hospitals)}
    rows = []
    for attribute, texts in federation.attributes.items():
        if not 1 < len(set(texts)) <= MOST:
            continue
        values = np.array([texts[place[name]] for name in panel.names], dtype=object)
        for value in sorted(set(values.tolist())):
            inside = panel.among(values == value)
            for key in panel.place:
                level = inside.level(key)
                low, high = level.population()
                rows.append((*key, attribute, value, level.hospitals, level.difference, low, high))
    columns = [*KEYS, "attribute", "value", "hospitals", panel.kind.headline, "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def plots(means: pd.DataFrame, models: Sequence[Key], names: Names, looks: Looks) -> list[svg.Figure]:
    """Plot the mean metrics of ``models`` by hospital attribute; ``means`` are from :func:`table`."""
    keys = [(str(a), str(b)) for a, b in means[KEYS].to_numpy()]
    means = means[[key in models for key in keys]]
    if means.empty:
        return []
    kind = reporting(means)
    limits = {row: possible.level(Limits(*ends), kind.larger) for row, ends in means[["low", "high"]].iterrows()}
    ends = [end for each in limits.values() if each != possible.NOTHING for end in each]
    x = svg.linear(f"mean {kind.title}", [*means[kind.headline], *ends], count=3)
    charts = [
        _panel(str(attribute), group, limits, x, names, looks)
        for attribute, group in means.groupby("attribute", sort=False)
    ]
    labels = [short(names[key]) for key in models]
    return [
        svg.figure(
            "attributes",
            "By kind of hospital",
            charts,
            f"Mean {kind.title} by kind of hospital, with the number of hospitals in brackets. Lines are 95 % "
            "intervals for hospitals like these, not adjusted for several comparisons; a single hospital has none. "
            f"Patients also differ between kinds of hospital, so this does not say why a model does well. {FILE} has "
            "all models.",
            svg.legend([(name, looks[key]) for name, key in zip(labels, models, strict=True)]),
        )
    ]


def _place(value: object) -> tuple[float, bool, str]:
    """Return a key that sorts values by their first number, and values without a number last.

    >>> sorted(["100 - 249", ">= 500", "<100", "250 - 499", "unknown"], key=_place)
    ['<100', '100 - 249', '250 - 499', '>= 500', 'unknown']
    """
    text = str(value)
    number = re.search(r"\d+(\.\d+)?", text)
    return float(number[0]) if number else np.inf, not text.startswith("<"), text


def _panel(
    attribute: str, group: pd.DataFrame, limits: Mapping[object, Limits], x: svg.Axis, names: Names, looks: Looks
) -> svg.Chart:
    kind = reporting(group)
    headline, digits = kind.headline, kind.decimals(group[kind.headline])
    group = group.sort_values("value", kind="stable", key=lambda values: values.map(_place))
    rows = list(group.to_dict("records"))
    texts = [
        f"{row['value']}, {short(names[str(row['strategy']), str(row['model'])])}: "
        f"{with_interval(float(row[headline]), *limits[at], digits)} over {counted(int(row['hospitals']), 'hospital')}"
        for at, row in zip(group.index, rows, strict=True)
    ]
    values = list(dict.fromkeys(group["value"]))
    most = group.groupby("value")["hospitals"].max()
    chart = svg.Chart(
        x,
        svg.names("", [f"{value} ({most[value]})" for value in values]),
        name=f"attributes-{attribute}",
        title=capitalised(attribute),
        description="; ".join(texts) + ".",
        width=1.35 * svg.PANEL,
        height=ROW * len(rows) + 74,
        gridlines="x",
    )
    models = len(rows) // len(values)
    for k, (at, row) in enumerate(zip(group.index, rows, strict=True)):
        look = looks[str(row["strategy"]), str(row["model"])]
        y = [k // models + 0.5 * (k % models - (models - 1) / 2) / max(models - 1, 1)]
        if limits[at] != possible.NOTHING:
            chart.whiskers([limits[at].low], [limits[at].high], y, look)
        chart.dots([float(row[headline])], y, look)
    return chart
