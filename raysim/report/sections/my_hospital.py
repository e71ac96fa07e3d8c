"""The section on one hospital, which the reader selects by its name or its dot."""

from __future__ import annotations

from raysim.metrics.labels import reporting
from raysim.report.hospital import gains, your_hospital
from raysim.report.sections.section import Material, Section, Values

NOBODY: Values = {"hospitals": [], "tables": []}

MARKUP = """\
<div class="gallery">
<div>
{% for sentence in gains | default([]) %}
<p>{{ sentence }}</p>
{% endfor %}
<div id="chooser" class="chooser" hidden>
<label for="hospital">Type a hospital's name</label>
<input id="hospital" list="hospitals" autocomplete="off" spellcheck="false">
<datalist id="hospitals">
{% for hospital in cards.hospitals %}
<option value="{{ hospital.name }}"></option>
{% endfor %}
</datalist>
<span class="note" id="chosen" role="status">or click its dot. The address of this page then leads to it.</span>
</div>
<noscript><p class="note">A hospital is chosen by script. Without it, <code>raysim report FOLDER --hospital \
NAME</code> writes the page of one hospital.</p></noscript>
<div id="card" class="own" aria-live="polite"></div>
</div>
<div>
{{ parts.figures_shown(gain_figures) }}
<div id="table-1"></div>
</div>
</div>
<div id="table-0"></div>
<details id="sent" hidden>
<summary>How often this hospital took part, and what left it</summary>
<div id="table-2"></div>
</details>
"""


def values(material: Material) -> Values:
    """Return a card for each hospital (if the page has cards), and the hospitals' gains by the model."""
    results, hospitals, best = material.results, material.hospitals, material.best
    cards: Values = NOBODY
    if not results or hospitals is None:
        return {"cards": cards, "gain_figures": []}
    if material.one_by_one:
        cards = your_hospital.cards(
            results, material.called, material.baseline, best, material.part, hospitals, material.alone
        )
    gained = None
    if best is not None:
        gained = your_hospital.recommended_gains(results, material.called, material.baseline, best, material.alone)
    drawn = []
    if material.one_by_one and gained is not None:
        drawn = gains.figure(gained)
    if material.one_by_one and not material.compared:
        (label, model), kind = list(material.called)[-1], reporting(material.table)
        drawn = gains.standing(gains.served(results, (label, model)), kind, model)
    return {"cards": cards, "gain_figures": drawn, "gains": [] if gained is None else gained.sentences()}


SECTION = Section(
    "your-hospital",
    "My hospital",
    {"run": MARKUP, "comparison": MARKUP},
    values,
    shown=lambda values: values["cards"]["hospitals"],
)
