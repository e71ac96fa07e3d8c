"""The section on the decision: the card in full, the reasons, and the evidence behind them."""

from __future__ import annotations

from raysim.report.sections.section import Section

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

SECTION = Section("answer-details", "Decision", {"run": RUN, "comparison": COMPARISON})
