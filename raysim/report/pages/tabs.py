"""The sections of the pages of runs and comparisons: a section is one file and a line here."""

from __future__ import annotations

from collections.abc import Iterator

from raysim.report.sections import accuracy, costs, decision, equity, my_hospital, protection, use
from raysim.report.sections.section import Material, Section, Values

SECTIONS: tuple[Section, ...] = (
    decision.SECTION,
    my_hospital.SECTION,
    accuracy.SECTION,
    use.SECTION,
    equity.SECTION,
    protection.SECTION,
    costs.SECTION,
)
"""In the order of their tabs."""


def contents(page: str, material: Material) -> Values:
    """The values of all sections of a ``page``."""
    return {name: value for each in SECTIONS if page in each.markup for name, value in each.values(material).items()}


def shown(page: str, values: Values) -> Iterator[tuple[str, str, str]]:
    """Key, title and markup of each section of a ``page`` that is shown with these ``values``."""
    return (
        (each.key, each.title, each.markup[page]) for each in SECTIONS if page in each.markup and each.shown(values)
    )
