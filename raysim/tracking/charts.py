"""Views of runs that MLflow opens by an address: a table of metrics, and charts of searched keys against objectives.

A view says which runs and charts a page displays. raysim stores a view in a tag of the experiment, as MLflow's button
"Share" does, in the layout of MLflow 3.
"""

from __future__ import annotations

import base64
import bisect
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from raysim.tracking.names import metric_name

VIEW_TAG = "mlflow.sharedViewState."

MOST = 100

LONGEST = 20_000

VERDICT_TAG = "verdict"
"""The tag with the conclusion of a run, in words."""

PREDICTS_TAG = "predicts"
"""The tag with the event or quantity that a run predicts."""

TABLE = "raysim"

WIDTHS = {
    "attributes.`Run Name`": 340,
    "runDateAndNestInfo": 130,  # time of start
    "metrics.`auroc`": 90,
    "metrics.`mae`": 90,
    "metrics.`worst_decile`": 100,
    "metrics.`observed_over_expected`": 170,
    "tags.`strategy`": 110,
    "tags.`seed`": 110,
    f"tags.`{VERDICT_TAG}`": 240,
    f"tags.`{PREDICTS_TAG}`": 140,
}
"""The columns of the view :data:`TABLE` in order, by their names in MLflow, with widths in pixels."""

WORKFLOW = "workflowType=machine_learning"


def runs_page(experiment: str) -> str:
    """Return the address, within MLflow's site, of the page of an experiment's runs."""
    return f"#/experiments/{experiment}/runs?{WORKFLOW}"


def charts_page(experiment: str, key: str) -> str:
    """Return the address, within MLflow's site, of an experiment's runs in the view ``key``."""
    return f"{runs_page(experiment)}&{urlencode({'compareRunsMode': 'CHART', 'viewStateShareKey': key})}"


def table_page(experiment: str) -> str:
    """Return the address, within MLflow's site, of an experiment's runs as a table of metrics."""
    return f"{runs_page(experiment)}&{urlencode({'viewStateShareKey': TABLE})}"


def table() -> str:
    """Return a view of an experiment's runs as a table with the columns :data:`WIDTHS`, encoded as MLflow stores it."""
    columns = list(WIDTHS)
    return _packed({"selectedColumns": columns, "columnOrder": columns, "columnWidths": WIDTHS})


def view_of(parent: str, params: Sequence[str], choices: Sequence[str], objectives: Mapping[str, str]) -> str:
    """Return a view with charts of the runs nested in the run ``parent``, encoded as MLflow stores it.

    - ``objectives`` maps metrics to the better direction, ``max`` or ``min``. The best run by the first metric is on
      top.
    - Each of ``params``, which have numbers as values, has a section with a chart against each objective.
    - A last section plots ``params`` and ``choices`` (parameters of any type) in parallel coordinates.

    If the view is too long for MLflow, its last sections are omitted.
    """
    names = [metric_name(objective) for objective in objectives]
    sections = [(param, _against(param, names)) for param in params]
    sections.append(("All searched keys", [_parallel([*params, *choices], names)]))
    state = {
        "searchFilter": f"tags.`mlflow.parentRunId` = '{parent}'",
        # If ordered by time, MLflow would fold nested runs below their parent, and plot only the parent.
        "orderByKey": f"metrics.`{names[0]}`",
        "orderByAsc": objectives[next(iter(objectives))] == "min",
        "runsHiddenMode": "SHOW_ALL",
        "isAccordionReordered": True,  # keeps these sections before MLflow's own sections
    }

    def packed(count: int) -> str:
        return _packed(state | _charts(sections[:count]))

    whole = packed(len(sections))
    if len(whole) <= LONGEST:
        return whole
    # The first section is always included.
    return packed(max(1, bisect.bisect_right(range(1, len(sections)), LONGEST, key=lambda count: len(packed(count)))))


def _charts(sections: Sequence[tuple[str, Sequence[dict[str, Any]]]]) -> dict[str, Any]:
    of_all = {"deleted": False, "isGenerated": False}
    named = [(f"section-{at}", *section) for at, section in enumerate(sections)]
    return {
        "compareRunSections": [
            {"uuid": section, "name": title, "display": True, "isReordered": True, **of_all}
            for section, title, _ in named
        ],
        "compareRunCharts": [
            {"uuid": f"{section}-{at}", "metricSectionId": section, "runsCountToCompare": MOST, **of_all, **chart}
            for section, _, charts in named
            for at, chart in enumerate(charts)
        ],
    }


def _against(param: str, metrics: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"type": "SCATTER", "xaxis": {"key": param, "type": "PARAM"}, "yaxis": {"key": metric, "type": "METRIC"}}
        for metric in metrics
    ]


def _parallel(params: Sequence[str], metrics: Sequence[str]) -> dict[str, Any]:
    return {"type": "PARALLEL", "selectedParams": list(params), "selectedMetrics": list(metrics), "showAllRuns": True}


def _packed(state: Mapping[str, Any]) -> str:
    """Encode a view as MLflow does: compressed by deflate, then base64."""
    return "deflate;" + base64.b64encode(zlib.compress(json.dumps(state).encode(), 9)).decode()
