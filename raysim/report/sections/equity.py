"""The section on equity: whether the model performs equally well for all hospitals and groups of patients."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.core.words import chance
from raysim.engine.job import Result
from raysim.metrics.labels import CLASSIFICATION
from raysim.report import svg
from raysim.report.figures.models import Looks, Names
from raysim.report.judgement.noise import Noise
from raysim.report.naming import Key, interval, minus, number, short
from raysim.report.pages.contents import fairness_headings, fairness_rows, noise_columns, noise_headings, noise_rows
from raysim.report.sections import hospital_clusters
from raysim.report.sections.section import Material, Section, Values, included
from raysim.statistics.chance.dispersion import TENTH
from raysim.statistics.differences.one_hospital import Sent, one_seed
from raysim.statistics.meta_analysis.gain_slope import GainSlope, gain_slope, smoothed_variances


def gain_by_size(results: Sequence[Result], key: Key, by_itself: Key | None) -> str:
    """Return a sentence on whether the gain of the model ``key`` over training alone is larger at small hospitals.

    ``by_itself`` is the model of training alone. The sentence is empty without such a model, if the label does not have
    two classes, or if sizes are not public.
    """
    alone = {result.seed: result for result in results if by_itself and result.label == by_itself[0]}
    ours = {result.seed: result for result in results if result.label == key[0] and result.seed in alone}
    public = all(result.outcome.noisy_sizes is None for result in results)
    if by_itself is None or not ours or not public or results[0].federation.task is not CLASSIFICATION:
        return ""
    pairs = [(_sent(result, key[1]), _sent(alone[seed], by_itself[1])) for seed, result in ours.items()]
    if any(one is None or other is None for one, other in pairs):
        return ""
    found = slope([(one, other) for one, other in pairs if one and other], results[0].federation.totals)
    if np.isnan(found.slope):
        return (
            f"Whether small hospitals gain more was not tested: {TENTH} judged hospitals of different sizes are needed."
        )
    low, high = (-end * float(np.log(2.0)) for end in (found.high, found.low))
    gain = f"{number(found.halving, 3, sign=True)} ({interval(low, high, 3, sign=True)})"
    more = "more" if found.halving > 0 else "less"
    begin = f"Small hospitals gain {more}" if found.demonstrated else "Not demonstrated that small hospitals gain more"
    return (
        f"{begin} over training alone: halving the size changes the gain in AUROC by {gain}, {chance(found.p)} (with "
        f"HC3 {chance(found.robust_p)})."
    )


def slope(pairs: Sequence[tuple[Sent, Sent]], sizes: NDArray[np.int64]) -> GainSlope:
    """Estimate the slope of hospitals' gains from one model over another on the logarithm of the hospitals' ``sizes``.

    ``pairs`` has, for each seed, what hospitals sent about the two models.
    """
    seeds = [one_seed(model, against) for model, against in pairs]
    gains = np.mean([seed.difference for seed in seeds], axis=0)
    own = np.square(np.mean([seed.sums for seed in seeds], axis=0)).mean(axis=1)
    events, others = (
        np.mean([getattr(model.pairs, name) for model, _ in pairs], axis=0) for name in ("events", "non_events")
    )
    judged = np.isfinite(gains)
    variance = np.full_like(gains, np.nan)
    if judged.any():
        variance[judged] = smoothed_variances(own[judged], events[judged], others[judged], sizes[judged])
    return gain_slope(gains, variance, sizes)


def _sent(result: Result, model: str) -> Sent | None:
    outcome = result.outcome
    return Sent(outcome.pairs[model], outcome.sketches[model]) if model in outcome.sketches else None


MOST = 8
"""The largest number of models in the figure; with more, only the most important are shown."""


def values(material: Material) -> Values:
    """Return the section's figures and tables; of several models with equal results, only one is included."""
    table, noise, distinct = material.table, material.noise, material.distinct
    names = list(distinct.values())
    clusters = hospital_clusters.clusters(material.results, material.titles)
    best = material.best
    return {
        "gains_by_size": "" if best is None else minus(gain_by_size(material.results, best, material.alone)),
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
    visible=lambda values: any(values.get(name) for name in ("equity", "noise", "fairness", "gains_by_size")),
)


MOST_PANELS = 2


def served_alike(table: pd.DataFrame, names: Names, looks: Looks, noise: Mapping[Key, Noise]) -> list[svg.Figure]:
    """Plot measures of dispersion over hospitals, compared with chance; empty without ``noise``.

    A band contains the value in 95 % of simulated federations whose hospitals have equal true performance. ``table`` is
    from :func:`raysim.report.tables.comparison`.
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
