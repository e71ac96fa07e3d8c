"""The section on data protection: the protections of a run or comparison, and the data sent."""

from __future__ import annotations

from raysim.report.naming import minus
from raysim.report.pages.section import Material, Section, Values, included


def values(material: Material) -> Values:
    """Return the tables and sentences of the section on data protection."""
    supplement = material.supplement
    return {
        "protections": list(supplement.protections),
        "traffic": list(supplement.traffic),
        "privacy": [minus(text) for text in supplement.privacy],
    }


SECTION = Section(
    "privacy",
    "Privacy and traffic",
    included("protection"),
    values,
    place=60,
    visible=lambda values: any(values.get(name) for name in ("protections", "traffic", "privacy")),
)
