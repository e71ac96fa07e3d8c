"""The pages of runs, comparisons and hospitals. A section is one module, and one line here."""

from __future__ import annotations

from raysim.report.sections import accuracy, costs, decision, equity, hospital, method, my_hospital, protection, use
from raysim.report.sections.section import Material, Section, Sheet, Values

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
"""The sections in the order of their tabs."""

DATED = """\
{% if provenance.origin %} · data {{ provenance.origin }}{% endif %}{% if provenance.date %} · {{ provenance.date }}\
{% endif %} · {{ provenance.seeds | length }} training seed{{ "s" if provenance.seeds | length > 1 }}"""

CARD = """\
{{% if shared is defined %}}<p class="note">{{{{ shared }}}}</p>{{% endif %}}
<div class="first">
<section aria-labelledby="answer" class="card">
<h2 id="answer" class="unseen">The answer</h2>
{{% if card.what %}}<p class="what">{{{{ card.what }}}}</p>{{% endif %}}
<p class="recommended">{{{{ card.headline }}}}</p>
{{{{ parts.lines(card.lines | rejectattr("fact", "equalto", "predicts" if card.what else "") | list, true) }}}}
</section>
<div class="beside">{}</div>
</div>
{{{{ cards | block("data") }}}}
"""

FIGURES = """\
{{ parts.figures_table("Figures over hospitals of each model used." ~ (" Bold is the best number of a column, not a \
finding." if body | length > 1 else ""), "Model", columns, body) }}
{{ parts.reading(task, part, few) }}"""

SCRIPTS = ("page.js", "figures.js")


def sheet(name: str) -> Sheet:
    """Return the sheet that ``report.json`` names. Raises ``KeyError`` for an unknown name."""
    across = "across {{ '{:,}'.format(provenance.hospitals) }} hospitals"
    return {
        "comparison": Sheet(
            "comparison",
            f"Comparison of federated methods {across}",
            SECTIONS,
            CARD.format("{{ parts.figures_shown(first or forest) }}"),
            DATED,
            True,
            SCRIPTS,
        ),
        "run": Sheet("run", f"One run {across}", SECTIONS, CARD.format(FIGURES), DATED, True, SCRIPTS),
        "hospital": hospital.SHEET,
    }[name]


def contents(page: str, material: Material) -> Values:
    """Return the values of all sections of a ``page``."""
    return {name: value for each in SECTIONS if each.on(page) for name, value in each.values(material).items()}
