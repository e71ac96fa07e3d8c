"""The section on one hospital, which a reader chooses by its name or its dot."""

from __future__ import annotations

from raysim.report.sections.section import Section

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
<summary>All figures of what left this hospital</summary>
<div id="table-2"></div>
</details>
"""

SECTION = Section(
    "your-hospital",
    "My hospital",
    {"run": MARKUP, "comparison": MARKUP},
    shown=lambda values: values["cards"]["hospitals"],
)
