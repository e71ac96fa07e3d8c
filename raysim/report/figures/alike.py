"""The figure on equal performance across hospitals: each measure of spread with the band that chance alone explains."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from raysim.report import svg
from raysim.report.figures.models import Looks, Names
from raysim.report.judgement.noise import Noise
from raysim.report.naming import Key, number, short
from raysim.report.pages.contents import noise_columns

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
