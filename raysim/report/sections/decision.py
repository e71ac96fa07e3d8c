"""The section on the decision: the card in full, the reasons, and the evidence behind them."""

from __future__ import annotations

from raysim.report.figures.forest import forest
from raysim.report.judgement import judged
from raysim.report.naming import minus
from raysim.report.pages.sentences import undefined_sentence
from raysim.report.sections.section import Material, Section, Values

RUN = """\
{{ parts.lines(card.lines, false) }}
{% if evidence %}<p>{{ evidence }}</p>{% endif %}
{% if reasons %}{{ parts.reasons(reasons) }}{% endif %}
{{ parts.gallery(events) }}
{% if undefined %}
<p class="note">{{ undefined }}</p>
{% endif %}
"""

COMPARISON = """\
{% if first %}{{ parts.gallery(forest) }}{% endif %}
<div class="gallery">
<div>
{% if card.lines %}
<h3>In full</h3>
{{ parts.lines(card.lines, false) }}
{% endif %}
{% if reasons %}
<h3>All that the data show</h3>
{{ parts.reasons(reasons) }}
{% endif %}
{% if caution %}
<p class="note">{{ caution }}</p>
{% endif %}
</div>
<div>
<h3>The evidence</h3>
{% if evidence %}<p>{{ evidence }}</p>{% endif %}
{{ parts.figures_shown(events) }}
{% if undefined %}
<p class="note">{{ undefined }}</p>
{% endif %}
</div>
</div>
"""


def values(material: Material) -> Values:
    """Return the forest, the reasons, and the evidence behind them."""
    hospitals, part = material.hospitals, material.part
    drawn, evidence, events = [], [], []
    if material.shown is not None and material.differences is not None:
        drawn = forest(material.shown, material.differences, material.looks)
    if hospitals is not None and (material.compared or not hospitals.empty):
        evidence = [judged.sentence(hospitals, part), *judged.not_trained(hospitals, material.called)]
        events = judged.events_figure(hospitals, part)
    return {
        "first": list(material.first),
        "forest": drawn,
        "reasons": [minus(text) for text in material.reasons],
        "caution": material.caution,
        "evidence": " ".join(evidence),
        "events": events,
        "undefined": undefined_sentence(hospitals, material.table, part),
    }


SECTION = Section("answer-details", "Decision", {"run": RUN, "comparison": COMPARISON}, values)
