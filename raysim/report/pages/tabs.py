"""The pages of runs, comparisons and hospitals."""

from __future__ import annotations

from raysim.report.sections import accuracy, costs, decision, equity, hospital, method, my_hospital, protection, use
from raysim.report.sections.section import Material, Section, Sheet, Values, included

SECTIONS: tuple[Section, ...] = (
    decision.SECTION,
    my_hospital.SECTION,
    accuracy.SECTION,
    use.SECTION,
    equity.SECTION,
    protection.SECTION,
    costs.SECTION,
    method.SECTION,
)
"""The sections of runs and comparisons, in the order of their tabs."""

DATED = """\
{% if provenance.origin %} · data {{ provenance.origin }}{% endif %}{% if provenance.date %} · {{ provenance.date }}\
{% endif %} · {{ provenance.seeds | length }} training seed{{ "s" if provenance.seeds | length > 1 }}"""

SCRIPTS = ("page.js", "figures.js")


def sheet(name: str) -> Sheet:
    """Return the layout of the kind of page that ``report.json`` calls ``name``. Raises ``KeyError`` for an unknown
    name.
    """
    across = "across {{ '{:,}'.format(provenance.hospitals) }} hospitals"
    return {
        "comparison": Sheet(
            "comparison",
            f"Comparison of federated methods {across}",
            SECTIONS,
            included("card_comparison"),
            DATED,
            True,
            SCRIPTS,
        ),
        "run": Sheet("run", f"One run {across}", SECTIONS, included("card_run"), DATED, True, SCRIPTS),
        "hospital": hospital.SHEET,
    }[name]


def contents(page: str, material: Material) -> Values:
    """Return the values of all sections of a page, by name; ``page`` is ``comparison``, ``run`` or ``hospital``."""
    return {name: value for each in SECTIONS if each.on(page) for name, value in each.values(material).items()}
