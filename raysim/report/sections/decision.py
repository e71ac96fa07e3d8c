"""The section on the decision: the decision card in full, the reasons, and their evidence."""

from __future__ import annotations

from raysim.report.figures.forest import forest
from raysim.report.judgement import judged
from raysim.report.naming import minus
from raysim.report.pages.section import Material, Section, Values, included
from raysim.report.pages.sentences import undefined_sentence


def values(material: Material) -> Values:
    """Return the plot of differences, the reasons for the recommendation, and sentences on the evaluated hospitals."""
    hospitals, part = material.hospitals, material.part
    plots, evidence, events = [], [], []
    if material.evidence is not None and material.differences is not None:
        plots = forest(material.evidence, material.differences, material.looks)
    if hospitals is not None and (material.compared or not hospitals.empty):
        evidence = [judged.sentence(hospitals, part), *judged.not_trained(hospitals, material.titles)]
        events = judged.events_figure(hospitals, part)
    return {
        "first": list(material.first),
        "forest": plots,
        "reasons": [minus(text) for text in material.reasons],
        "caution": material.caution,
        "evidence": " ".join(evidence),
        "events": events,
        "undefined": undefined_sentence(hospitals, material.table, part),
    }


SECTION = Section(
    "answer-details",
    "Decision",
    {"run": included("decision_run"), "comparison": included("decision_comparison")},
    values,
    place=10,
)
