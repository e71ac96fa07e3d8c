"""The section on one hospital, which the reader selects by its name or its dot."""

from __future__ import annotations

from raysim.metrics.labels import reporting
from raysim.report.hospital import gains, your_hospital
from raysim.report.pages.section import Material, Section, Values, included

NOBODY: Values = {"hospitals": [], "tables": []}


def values(material: Material) -> Values:
    """Return a card (a short text) for each hospital, and the hospitals' gains from the recommended model.

    On the page of a single run, each hospital's main metric replaces the gains. There are no cards without runs, or if
    there are too many hospitals.
    """
    results, hospitals, best = material.results, material.hospitals, material.best
    cards: Values = NOBODY
    if not results or hospitals is None:
        return {"cards": cards, "gain_figures": []}
    if material.one_by_one:
        cards = your_hospital.cards(
            results, material.titles, material.baseline, best, material.part, hospitals, material.alone
        )
    gained = None
    if best is not None:
        gained = your_hospital.recommended_gains(results, material.titles, material.baseline, best, material.alone)
    plots = []
    if material.one_by_one and gained is not None:
        plots = gains.figure(gained)
    if material.one_by_one and not material.compared:
        (label, model), kind = list(material.titles)[-1], reporting(material.table)
        plots = gains.standing(gains.served(results, (label, model)), kind, model)
    return {"cards": cards, "gain_figures": plots, "gains": [] if gained is None else gained.sentences()}


SECTION = Section(
    "your-hospital",
    "My hospital",
    included("my_hospital"),
    values,
    place=20,
    visible=lambda values: values["cards"]["hospitals"],
)
