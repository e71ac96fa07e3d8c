"""Views that MLflow opens by an address, without a click: the figures of runs as a table, and what was searched
against what came of it as charts.

MLflow keeps a view of an experiment's runs (which runs, which charts) in a tag of the experiment, and its page shows
the view that an address names. It is what its own button "Share" writes; the layout is that of MLflow 3.
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
"""The prefix of the tag that holds a view, before the view's key."""

MOST = 100
"""The most runs that a chart draws."""

LONGEST = 20_000
"""The most characters of an experiment's tag in MLflow."""

VERDICT_TAG = "verdict"
"""The tag that holds what a run came to, in words."""

PREDICTS_TAG = "predicts"
"""The tag that holds what is predicted."""

TABLE = "raysim"
"""The key of the view that is a table of runs."""

WIDTHS = {
    "attributes.`Run Name`": 340,
    "runDateAndNestInfo": 130,  # when it began
    "metrics.`auroc`": 90,
    "metrics.`mae`": 90,
    "metrics.`worst_decile`": 100,
    "metrics.`observed_over_expected`": 170,
    "tags.`strategy`": 110,
    "tags.`seed`": 110,
    f"tags.`{VERDICT_TAG}`": 240,
    f"tags.`{PREDICTS_TAG}`": 140,
}
"""The columns of that table in order, as MLflow calls them, and their pixels. It leaves out those that no run has."""

WORKFLOW = "workflowType=machine_learning"
"""Opens the runs of an experiment as runs of machine learning."""


def runs_page(experiment: str) -> str:
    """The page of an experiment's runs, as an address within MLflow's site."""
    return f"#/experiments/{experiment}/runs?{WORKFLOW}"


def charts_page(experiment: str, key: str) -> str:
    """The page of an experiment's runs that opens the view ``key``, as an address within MLflow's site."""
    return f"{runs_page(experiment)}&{urlencode({'compareRunsMode': 'CHART', 'viewStateShareKey': key})}"


def table_page(experiment: str) -> str:
    """The page of an experiment's runs that opens the view :data:`TABLE`, as an address within MLflow's site."""
    return f"{runs_page(experiment)}&{urlencode({'viewStateShareKey': TABLE})}"


def table() -> str:
    """The view of all runs of an experiment as a table with the columns :data:`WIDTHS`, as the tag's value.

    Runs stand in MLflow's own order, the newest first; those of a comparison are folded below it.
    """
    columns = list(WIDTHS)
    return _packed({"selectedColumns": columns, "columnOrder": columns, "columnWidths": WIDTHS})


def view_of(parent: str, params: Sequence[str], choices: Sequence[str], objectives: Mapping[str, str]) -> str:
    """The view of the runs nested in ``parent``, as the tag's value.

    ``objectives`` are figures with the direction in which each is better, ``max`` or ``min``; the best run in the first
    of them is on top. A section for each of ``params``, whose values are numbers, draws it against every objective. One
    more sets these and ``choices``, whose values may be anything, side by side in parallel coordinates. What is longer
    than MLflow takes is cut off, the last sections first.
    """
    names = [metric_name(objective) for objective in objectives]
    sections = [(param, _against(param, names)) for param in params]
    sections.append(("All searched keys", [_parallel([*params, *choices], names)]))
    state = {
        "searchFilter": f"tags.`mlflow.parentRunId` = '{parent}'",
        # By time, MLflow would fold the runs below the one that they are nested in, and draw that one alone.
        "orderByKey": f"metrics.`{names[0]}`",
        "orderByAsc": objectives[next(iter(objectives))] == "min",
        "runsHiddenMode": "SHOW_ALL",
        "isAccordionReordered": True,  # these sections stay in front of MLflow's own, of all metrics
    }

    def shown(count: int) -> str:
        return _packed(state | _charts(sections[:count]))

    whole = shown(len(sections))
    if len(whole) <= LONGEST:
        return whole
    # The first is shown in any case.
    return shown(max(1, bisect.bisect_right(range(1, len(sections)), LONGEST, key=lambda count: len(shown(count)))))


def _charts(sections: Sequence[tuple[str, Sequence[dict[str, Any]]]]) -> dict[str, Any]:
    """Titles and charts of sections as MLflow has them: each chart names its section."""
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
    return {
        "type": "PARALLEL",
        "selectedParams": list(params),
        "selectedMetrics": list(metrics),
        "showAllRuns": True,
    }


def _packed(state: Mapping[str, Any]) -> str:
    """As MLflow writes it: deflated, and in letters."""
    return "deflate;" + base64.b64encode(zlib.compress(json.dumps(state).encode(), 9)).decode()
