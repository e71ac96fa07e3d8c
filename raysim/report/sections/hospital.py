"""The page of one hospital of a run or a comparison."""

from __future__ import annotations

from raysim.report.sections.common import setting
from raysim.report.sections.section import Section, Sheet

TOP = """\
{{ parts.marked(number) }}
<section aria-labelledby="answer" class="card">
<h2 id="answer" class="unseen">What these data say of this hospital</h2>
{% for sentence in hospital.lead %}
<p class="{{ "recommended" if loop.first else "lead" }}">{{ sentence }}</p>
{% endfor %}
</section>
"""

FACTS = """\
<div class="gallery">
<dl class="facts">
{% for fact in hospital.facts %}
<div><dt>{{ fact[0] }}</dt><dd>{{ fact[1] }}</dd></div>
{% endfor %}
</dl>
<div>
{% for sentence in gains %}
<p>{{ sentence }}</p>
{% endfor %}
{{ parts.figures_shown(figures[:1]) }}
</div>
</div>
<div class="gallery tables">
{% for table in tables %}
{% if hospital.tables[loop.index0] %}{{ parts.plain_table(table.caption, table.columns, \
hospital.tables[loop.index0]) }}{% endif %}
{% endfor %}
</div>
"""

AMONG = """\
<div class="gallery">{{ parts.figures_shown(figures[1:]) }}</div>
"""

SHEET = Sheet(
    "hospital",
    "One hospital of {{ of }}",
    (
        Section("facts", "This hospital", FACTS),
        Section("among", "Among the others", AMONG, shown=lambda values: values["figures"][1:]),
        setting("What was run", facts=False),
    ),
    TOP,
    wide=True,
)
