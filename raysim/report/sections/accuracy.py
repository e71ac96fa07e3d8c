"""How accuracy is spread over hospitals: accuracy, AD and SDAD (Clust-PSI-PFL), and the figures behind them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from raysim.core.words import capitalised
from raysim.metrics.declared import ADDED, SCORES
from raysim.report.pages.contents import Cell, Row
from raysim.report.sections.section import Section
from raysim.report.tables import KEYS

COLUMNS = (
    *(("accuracy", "Accuracy", True), ("ad", "AD", False), ("sdad", "SDAD", False)),
    *((each.name, capitalised(each.unit.partition(",")[0]), each.larger) for each in SCORES if each.name in ADDED),
)
"""Figure, heading, and whether more is better (None: neither); the last are those that other packages register."""


def accuracy_rows(per_seed: pd.DataFrame, names: Sequence[str]) -> list[Row]:
    """Rows of the table of accuracy: mean and deviation over seeds, the best of each column marked as displayed.

    ``per_seed`` has a row a strategy, model and seed, ``names`` are those of the strategies and models in the order in
    which they first appear. No rows where accuracy is not measured.
    """
    if not {figure for figure, *_ in COLUMNS} <= set(per_seed):
        return []
    groups = per_seed.assign(model=per_seed.get("model", "global")).groupby(KEYS, sort=False)
    rated = ~groups["yardstick"].first().to_numpy(bool) if "yardstick" in per_seed else np.ones(len(names), dtype=bool)
    cells = []
    for figure, _, larger in COLUMNS:
        means, stds = (
            np.round(column.to_numpy(np.float64), 3) for column in (groups[figure].mean(), groups[figure].std())
        )
        candidates = means[rated & np.isfinite(means)]
        rankable = larger is not None and len(candidates) and len(means) > 1
        top = (candidates.max() if larger else candidates.min()) if rankable else None
        cells.append(
            [
                Cell(
                    f"{mean:.3f}" if np.isfinite(mean) else "undefined",
                    f"{std:.3f}" if np.isfinite(std) else "",
                    bool(among and mean == top),
                )
                for mean, std, among in zip(means, stds, rated, strict=True)
            ]
        )
    return [Row(name, line) for name, *line in zip(names, *cells, strict=True)]


def local_accuracy(hospitals: pd.DataFrame) -> pd.DataFrame:
    """``strategy, model, hospital, accuracy``: means over seeds, of hospitals with test rows.

    ``hospitals`` has these columns, ``n_test`` and optionally ``seed``; no rows where accuracy is not measured.
    """
    if "accuracy" not in hospitals:
        return pd.DataFrame(columns=[*KEYS, "hospital", "accuracy"])
    tested = hospitals[(hospitals["n_test"] > 0) & hospitals["accuracy"].notna()]
    return tested.groupby([*KEYS, "hospital"], sort=False)["accuracy"].mean().reset_index()


RUN = """\
{{ parts.gallery(accuracy_figures) }}
{% if worst %}
<h3>The worst-served hospitals</h3>
<div class="wide" tabindex="0" role="region" aria-label="Table of the worst-served hospitals">
<table style="--columns: {{ 4 if worst.intervals else 3 }}">
<caption>{{ worst.caption }}</caption>
<thead><tr><th scope="col">Hospital</th><th scope="col">Stays</th><th scope="col">{{ part | capitalize }} \
rows</th><th scope="col">{{ worst.title }}</th>{% if worst.intervals %}<th scope="col">95 % interval \
(patients)</th>{% endif %}</tr></thead>
<tbody>
{% for row in worst.rows %}
<tr><th scope="row">{{ row.name }}</th><td>{{ row.stays }}</td><td>{{ row.tested }}</td><td>{{ row.figure }}</td>{% \
if worst.intervals %}<td>{{ row.interval }}</td>{% endif %}</tr>
{% endfor %}
</tbody>
</table>
</div>
{% endif %}
{% if accuracy_figures | selectattr("more") | list %}
<details>
<summary>All figures of accuracy</summary>
{{ parts.folded(accuracy_figures) }}
</details>
{% endif %}
"""

COMPARISON = """\
{{ parts.figures_table(("Mean ± standard deviation over seeds" if several else "One seed") ~ ". Bold is the best \
number of a column, not a finding.", "Strategy", columns, body) }}
{% if equal %}<p class="note">{{ equal | join(" ") }}</p>{% endif %}
{{ parts.reading(task, part, few) }}
{{ parts.gallery(accuracy_figures) }}
<details>
<summary>All figures of accuracy</summary>
{% if differences %}
<h3>Difference from {{ baseline }}</h3>
{{ parts.figures_table("Paired by seed, mean ± standard deviation; below it, where the data allow it, a 95 % \
interval that holds by itself" ~ ("." if several else " for these trained models; one seed cannot compare ways of \
training."), "Strategy", difference_columns, differences) }}
<p class="note">{% if task.larger %}Positive is better{% if not few %} for {{ task.title }} and worst decile, \
negative for size bias{% endif %}.{% else %}Negative is better.{% endif %} The interval of the mean is for hospitals \
like these, with other patients and training seeds; that of the worst decile draws hospitals again and adds training \
seeds, from 30 judged ones on. The intervals of the decision hold together for all pairs and are wider. The \
difference of mean {{ task.title }} weighs the rows of all seeds alike, as in the decision; the first table has \
means of seeds, so that its last digit may differ.</p>
{% endif %}
{% if accuracy %}
{{ parts.figures_table("Accuracy over all " ~ part ~ " rows; AD and SDAD, the mean and deviation over hospitals of 1 \
less local accuracy, are best when low.", "Strategy", accuracy_columns, accuracy) }}
{% endif %}
{{ parts.folded(accuracy_figures) }}
</details>
"""

SECTION = Section("figures", "Accuracy", {"run": RUN, "comparison": COMPARISON})
