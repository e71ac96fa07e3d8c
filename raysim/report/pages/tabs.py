"""The pages of runs, comparisons and hospitals."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from operator import attrgetter

from raysim.report import sections
from raysim.report.pages.common import setting
from raysim.report.pages.section import Material, Section, Sheet, Values, included

DATED = """\
{% if provenance.origin %} · data {{ provenance.origin }}{% endif %}{% if provenance.date %} · {{ provenance.date }}\
{% endif %} · {{ provenance.seeds | length }} training seed{{ "s" if provenance.seeds | length > 1 }}"""

SCRIPTS = ("page.js", "figures.js")

AMONG = '<div class="gallery">{{ parts.figures_shown(figures[1:]) }}</div>\n'

HOSPITAL = Sheet(
    "hospital",
    "One hospital of {{ of }}",
    (
        Section("facts", "This hospital", included("hospital")),
        Section("among", "Among the others", AMONG, visible=lambda values: values["figures"][1:]),
        setting("What was run", facts=False),
    ),
    included("hospital_card"),
    wide=True,
)


def tabs() -> tuple[Section, ...]:
    """Return the sections of runs and comparisons in order, one from each module of ``raysim.report.sections``."""
    modules = [f"{sections.__name__}.{module.name}" for module in pkgutil.iter_modules(sections.__path__)]
    return tuple(sorted((import_module(name).SECTION for name in modules), key=attrgetter("place")))


def sheet(name: str) -> Sheet:
    """Return the layout of the kind of page that ``report.json`` calls ``name``. Raises ``KeyError`` for an unknown
    name.
    """
    across = "across {{ '{:,}'.format(provenance.hospitals) }} hospitals"
    return {
        "comparison": Sheet(
            "comparison",
            f"Comparison of federated methods {across}",
            tabs(),
            included("card_comparison"),
            DATED,
            True,
            SCRIPTS,
        ),
        "run": Sheet("run", f"One run {across}", tabs(), included("card_run"), DATED, True, SCRIPTS),
        "hospital": HOSPITAL,
    }[name]


def contents(page: str, material: Material) -> Values:
    """Return the values of all sections of a page, by name; ``page`` is ``comparison`` or ``run``."""
    return {name: value for each in tabs() if each.on(page) for name, value in each.values(material).items()}
