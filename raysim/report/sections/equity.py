"""The section on equity: whether the model performs equally well for all hospitals and groups of patients."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pandas as pd

from raysim.report import svg
from raysim.report.figures.models import Looks, Names
from raysim.report.judgement.noise import Noise
from raysim.report.naming import Key, minus, number, short
from raysim.report.pages.contents import fairness_headings, fairness_rows, noise_columns, noise_headings, noise_rows
from raysim.report.pages.section import Material, Section, Values, included
from raysim.report.supplement import gain_by_size, hospital_clusters

MOST = 8
"""The largest number of models in the figure; with more, only the most important are shown."""


def values(material: Material) -> Values:
    """Return the section's figures and tables; of several models with equal results, only one is included."""
    table, noise, distinct = material.table, material.noise, material.distinct
    names = list(distinct.values())
    clusters = hospital_clusters.clusters(material.results, material.titles)
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
    """Return the models to plot: all, or only the most important if there are more than :data:`MOST`.

    The most important are the recommended model, the reference strategy's model, and models that are not federated.
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
    place=50,
    visible=lambda values: any(values.get(name) for name in ("equity", "noise", "fairness", "gains_by_size")),
)


MOST_PANELS = 2


def served_alike(table: pd.DataFrame, names: Names, looks: Looks, noise: Mapping[Key, Noise]) -> list[svg.Figure]:
    """Plot measures of dispersion over hospitals, compared with chance.

    Only models in ``noise`` are plotted; without any, the list is empty. A band contains the value in 95 % of simulated
    federations whose hospitals have equal true performance. ``table`` is from :func:`raysim.report.tables.comparison`.
    """
    keys = [key for key in names if key in noise and noise[key].floor.figures]
    charts = []
    for figure, heading, digits in noise_columns(table, noise)[:MOST_PANELS] if keys else []:
        floors = {key: noise[key].floor.figures[figure] for key in keys if figure in noise[key].floor.figures}
        ends = [end for each in floors.values() for end in (each.value, each.low, each.high)]
        chart = svg.Chart(
            svg.linear(heading, ends, count=4),
            svg.names("", [short(names[key]) for key in floors]),
            name=f"alike-{figure.replace('_', '-')}",
            description="; ".join(
                f"{names[key]} {number(each.value, digits)}, by chance {number(each.low, digits)} to "
                f"{number(each.high, digits)}"
                for key, each in floors.items()
            )
            + ".",
            width=1.35 * svg.PANEL,
            height=24.0 * len(floors) + 74,
            gridlines="x",
        )
        for i, (key, each) in enumerate(floors.items()):
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
            "Do hospitals differ beyond chance?",
            charts,
            f"A dot is the figure on these rows (seed {seed}). The grey band is its 95 % range if hospitals of these "
            "sizes had no true differences. A dot inside its band: no difference is demonstrated.",
        )
    ]
