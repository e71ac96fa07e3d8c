"""The page of an audit: the results of the attacks in words, tables and figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from raysim.core.words import counted
from raysim.report import svg
from raysim.report.judgement import audited
from raysim.report.judgement.audited import TITLES
from raysim.report.naming import minus
from raysim.report.pages.common import ANSWER, PICTURES, setting
from raysim.report.pages.rendering import Page, Provenance
from raysim.report.pages.section import Section, Sheet, included
from raysim.report.svg import PANEL, Style

FEATURES = 24
"""The largest number of features in the figure of a reconstructed patient."""

HOSPITAL, PATIENT, READ = Style(9, "circle"), Style(9, "circle", "open"), Style(11, "circle")
"""The markers of a hospital, of a patient's value, and of a reconstructed value."""


SHEET = Sheet(
    "audit",
    "An audit of privacy",
    (
        replace(
            ANSWER,
            title="What the attacks found",
            markup=f'{ANSWER.markup}<p class="note">A stronger attack may find more.</p>\n',
        ),
        Section("members", "Which rows were trained on", included("audit")),
        PICTURES,
        setting("What was run", facts=False),
    ),
)


def audit_page(
    title: str,
    summary: Mapping[str, Any],
    membership: pd.DataFrame,
    inverted: pd.DataFrame | None,
    provenance: Provenance,
) -> str:
    """Return the report of a privacy audit as HTML.

    ``summary``, ``membership`` and ``inverted`` are the contents of ``audit.json``, ``membership.csv`` and
    ``inversion.csv``.
    """
    pictures = []
    if inverted is not None and inverted["read_from_update"].notna().all():
        pictures.append(row_and_reading(inverted))
    pictures.append(leaks_by_size(membership, summary))
    values = {
        "title": title,
        "lead": lead(summary),
        "found": [_attack_row(attack, summary[attack]) for attack in TITLES if attack in summary],
        "pictures": pictures,
        "provenance": provenance,
        "links": [],
    }
    return Page(SHEET, values).html()


def lead(summary: Mapping[str, Any]) -> list[str]:
    """Return the headline, then further sentences on the attacks."""
    inversion, bound = summary.get("inversion"), summary.get("one_run")
    sentences = [audited.headline(summary)]
    if inversion is not None and audited.read_out(inversion) not in sentences[0]:
        sentences.append(audited.read_out(inversion))
    if bound is not None and audited.canaries(bound) not in sentences[0]:
        sentences.append(audited.canaries(bound))
    return [minus(text) for text in (*sentences, *(by_size(each, summary[each]) for each in TITLES if each in summary))]


def by_size(attack: str, figures: Mapping[str, Any]) -> str:
    """Describe how successful an attack is, and whether it succeeds more often at small hospitals."""
    separation = f"{TITLES[attack]}: training rows are distinguished from others with AUROC {audited.auroc(figures)}"
    if not _defined(figures["slope_low"]):
        return f"{separation}; a slope on size needs ten hospitals."
    doubling = (
        f"{figures['slope_per_doubling']:+.4f} for twice the rows ({figures['slope_low']:+.4f} to "
        f"{figures['slope_high']:+.4f})"
    )
    if figures["smaller_leak_more"]:
        return f"{separation}; smaller hospitals leak more: {doubling}."
    if figures["larger_leak_more"]:
        return f"{separation}; larger hospitals leak more: {doubling}."
    return f"{separation}; no dependence of leakage on size was demonstrated: {doubling}."


def leaks_by_size(membership: pd.DataFrame, summary: Mapping[str, Any]) -> svg.Figure:
    """Plot the AUROC of membership inference at each hospital with its interval, by training rows."""
    attacks = [attack for attack in TITLES if attack in set(membership["attack"])]
    measured = membership[
        (membership["hospital"] != "(all)") & membership["auroc"].notna() & (membership["n_train"] > 0)
    ]
    x = svg.log("training rows of the hospital", measured["n_train"], count=5)
    y = svg.linear("AUROC of membership", measured[["auroc", "auroc_low", "auroc_high"]], include=(0.5,))
    charts = []
    for attack in attacks:
        rows, figures = measured[measured["attack"] == attack], summary[attack]
        description = f"{by_size(attack, figures)} {counted(len(rows), 'hospital')}."
        chart = svg.Chart(
            x,
            y,
            name=f"by-size-{attack}",
            title=TITLES[attack],
            description=description,
            width=1.5 * PANEL,
            height=260.0,
        )
        chart.rule(y=0.5, dashed=True)
        chart.whiskers(
            rows["auroc_low"], rows["auroc_high"], rows["n_train"], upright=True, class_="whisker thin faint"
        )
        chart.dots(rows["n_train"], rows["auroc"], HOSPITAL, size=3.5)
        if _defined(figures["slope_low"]) and len(rows):
            across = np.log2(rows["n_train"].to_numpy(float))
            across = np.array([across.min(), across.max()])
            level = figures["auroc_at_middle"] + figures["slope_per_doubling"] * (across - figures["log2_middle"])
            chart.line(2.0**across, level, svg.PLAIN)
        charts.append(chart)
    return svg.figure(
        "by-size",
        "Which rows were trained on, by size of hospital",
        charts,
        "How well an attack distinguishes a hospital's training rows from its other rows. The dashed line, 0.5, is "
        "chance. Vertical lines are 95 % intervals over rows. The sloped line is the trend with the logarithm of size, "
        "from ten hospitals on.",
    )


def row_and_reading(inverted: pd.DataFrame) -> svg.Figure:
    """Plot a patient's feature values next to the values that an attack reconstructed."""
    features = inverted[inverted["feature"] != "(label)"]
    largest = features.reindex(features["patient"].abs().sort_values(ascending=False, kind="stable").index)[:FEATURES]
    at = np.arange(len(largest), dtype=float)
    chart = svg.Chart(
        svg.linear("value as the model receives it", largest[["patient", "read_from_update"]], include=(0.0,)),
        svg.names("", [str(name) for name in largest["feature"]]),
        name="inversion",
        description=_deviation(inverted),
        height=22.0 * len(largest) + 60,
        gridlines="x",
    )
    chart.dots(largest["patient"], at, PATIENT, size=6.0)
    chart.dots(largest["read_from_update"], at, READ, size=2.5)
    return svg.figure(
        "inversion",
        "A patient's row, read out of one update",
        [chart],
        "The update of a hospital that trains on one row reveals that row: it is the change of a unit's weights in the "
        f"first layer, divided by the change of its intercept. {_deviation(inverted)}",
        svg.legend([("the patient's row, as the model receives it", PATIENT), ("read out of the update", READ)]),
    )


def _deviation(inverted: pd.DataFrame) -> str:
    most = float((inverted["patient"] - inverted["read_from_update"]).abs().max())
    return f"All {len(inverted) - 1} features and the label are read out; the largest deviation is {most:.1g}."


def _attack_row(attack: str, figures: Mapping[str, Any]) -> list[str]:
    shares = [audited.share(figures[key]) for key in ("found_at_0.01", "found_at_0.001")]
    return [TITLES[attack], audited.auroc(figures), *shares]


def _defined(value: float | None) -> bool:
    return value is not None and bool(np.isfinite(value))
