"""The section on equity: whether the model performs equally well for all hospitals and groups of patients."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pandas as pd

from raysim.report import svg
from raysim.report.figures.models import Looks, Names
from raysim.report.hospital import gain_by_size
from raysim.report.judgement.noise import Noise
from raysim.report.naming import Key, minus, number, short
from raysim.report.pages.contents import fairness_headings, fairness_rows, noise_columns, noise_headings, noise_rows
from raysim.report.sections import hospital_clusters
from raysim.report.sections.section import Material, Section, Values, included

MOST = 8
"""The largest number of models in the figure that compares them with chance; the table has all models."""


def values(material: Material) -> Values:
    """Return figures and tables of the models that differ."""
    table, noise, distinct = material.table, material.noise, material.distinct
    names = list(distinct.values())
    clusters = hospital_clusters.clusters(material.results, material.called)
    best = material.best
    return {
        "gains_by_size": "" if best is None else minus(gain_by_size.sentence(material.results, best, material.alone)),
        "noise_columns": noise_headings(table, noise),
        "noise": noise_rows(table, names, noise),
        "fairness_columns": fairness_headings(table, noise),
        "fairness": fairness_rows(table, names, noise),
        "equity": [
            *served_alike(table, _few(material), material.looks, noise),
            *material.supplement.equity,
            *(dataclasses.replace(figure, more=True) for figure in clusters),
        ],
    }


def _few(material: Material) -> Names:
    """Return the models by name; if there are more than :data:`MOST`, only the main ones.

    The main ones are the recommended model, the model that it is compared with, and references.
    """
    references = {result.label for result in material.results if result.is_reference}
    chosen = (material.best, material.against)
    few = {key: name for key, name in material.distinct.items() if key in chosen or key[0] in references}
    return few if len(material.distinct) > MOST and few else material.distinct


SECTION = Section(
    "equity",
    "Equity",
    included("equity"),
    values,
    shown=lambda values: any(values.get(name) for name in ("equity", "noise", "fairness", "gains_by_size")),
)


MOST_PANELS = 2


def served_alike(table: pd.DataFrame, names: Names, looks: Looks, noise: Mapping[Key, Noise]) -> list[svg.Figure]:
    """Plot one panel for each figure, and one row for each model: a dot for the value, a band for chance alone.

    The band contains 95 % of federations with equal true performance. ``table`` is from
    :func:`raysim.report.tables.comparison`; the result is empty without ``noise``.
    """
    keys = [key for key in names if key in noise and noise[key].floor.figures]
    charts = []
    for figure, heading, digits in noise_columns(table, noise)[:MOST_PANELS] if keys else []:
        shown = {key: noise[key].floor.figures[figure] for key in keys if figure in noise[key].floor.figures}
        ends = [end for each in shown.values() for end in (each.value, each.low, each.high)]
        chart = svg.Chart(
            svg.linear(heading, ends, count=4),
            svg.names("", [short(names[key]) for key in shown]),
            name=f"alike-{figure.replace('_', '-')}",
            description="; ".join(
                f"{names[key]} {number(each.value, digits)}, by chance {number(each.low, digits)} to "
                f"{number(each.high, digits)}"
                for key, each in shown.items()
            )
            + ".",
            width=1.35 * svg.PANEL,
            height=24.0 * len(shown) + 74,
            gridlines="x",
        )
        for i, (key, each) in enumerate(shown.items()):
            if np.isfinite([each.low, each.high]).all():
                chart.bars([each.low], [each.high], [i], thick=0.8, class_="bar chance")
            chart.dots([each.value], [i], looks[key], size=5.0)
        charts.append(chart)
    if not charts:
        return []
    seed = next(iter(noise.values())).seed
    return [
        svg.figure(
            "alike",
            "Are all hospitals served alike?",
            charts,
            f"A dot is the figure on these rows (seed {seed}); the grey band is where it would lie in 95 % of "
            "federations of this size that serve all hospitals alike. A dot inside its band: no difference shown.",
        )
    ]
