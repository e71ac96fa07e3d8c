"""The sections of the page of a sweep: the answer, every trial, and what was run."""

from __future__ import annotations

from raysim.report.sections.common import setting
from raysim.report.sections.section import Section, Sheet

ANSWER = """\
<div class="card">
<p class="lead">{{ lead }}</p>
{% if recommended %}
<p>{% for key, value in params %}<code>{{ key }}</code> <strong>{{ value }}</strong>{{ ", " if not loop.last }}\
{% endfor %}</p>
<ul class="reasons">
{% for sentence in gives_up %}
<li>{{ sentence }}</li>
{% endfor %}
</ul>
{% endif %}
{% for caution in cautions %}
<p><strong>{{ caution[0] | upper }}{{ caution[1:].rstrip(".") }}.</strong></p>
{% endfor %}
{% if warning %}
<p><strong>{{ warning[0] | upper }}{{ warning[1:] }}.</strong></p>
{% endif %}
</div>
<p class="note">{{ counted }}</p>
{% if recommended %}
{{ parts.figures_table("The recommended trial" ~ (": means over seeds, below them a 95 % interval over seeds." if \
several else ", one seed: there is no interval."), "Objective", columns, objectives) }}
<p class="note">{% if tested %}Trials were chosen by validation rows, so that these flatter the chosen one; no trial \
has seen the test rows. {% else %}It was not judged on test rows yet. {% endif %}Its complete configuration is \
<a href="recommended.yaml">recommended.yaml</a>, which <code>raysim run</code> takes.{% if provenance.runs %} Its runs \
on test rows:{% for seed, page in provenance.runs.items() %} <a href="{{ page }}">seed {{ seed }}</a>\
{{ "," if not loop.last }}{% endfor %}.{% endif %}</p>
{% endif %}
"""

PICTURES = """\
<div class="chosen" role="status" aria-live="polite">
<label for="trial">Trial</label>
<select id="trial"><option value="">point at a mark, or choose</option>\
{% for index, number in numbers %}<option value="{{ index }}">{{ number }}</option>{% endfor %}</select>
<span id="told"></span>
</div>
<div class="gallery">{{ parts.figures_shown(figures) }}</div>
"""

TRIALS = """\
{{ parts.figures_table("On validation rows, the Pareto set first" ~ \
(("; " ~ unlisted ~ " more are in trials.csv.") if unlisted else "."), "Trial", trial_columns, trials, true) }}
<p class="note">Every figure of every trial: <a href="trials.csv">trials.csv</a>.</p>
"""

SHEET = Sheet(
    "sweep",
    "Search for hyper-parameters",
    (
        Section("answer", "The answer", ANSWER),
        Section("pictures", "Every trial", PICTURES, shown=lambda values: values["figures"]),
        Section("trials-table", "Trials", TRIALS, shown=lambda values: values["trials"]),
        setting("What was run"),
    ),
    "{{ data }}",
    wide=True,
    scripts=("trials.js", "figures.js"),
)
