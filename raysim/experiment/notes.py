"""The outcome of a run or comparison in MLflow's record: headline figures and a conclusion."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import Any

from raysim.engine.job import Outcome, Result
from raysim.storage.manifest import Kind, Manifest
from raysim.tracking.charts import VERDICT_TAG
from raysim.tracking.names import metric_label

TITLE = 120
"""Largest number of characters of an experiment's name in MLflow."""


def headlines(results: Sequence[Result]) -> dict[str, float]:
    """Return two MLflow metrics of each strategy's headline model, by name; each is a mean over seeds.

    They are the task's headline metric and its mean over the worst tenth of hospitals.
    """
    figures: dict[str, list[float]] = {}
    for result in results:
        metrics = list(result.outcome.metrics.values())[-1]
        for name in (result.federation.task.headline, "worst_decile"):
            figures.setdefault(f"{name}/{metric_label(result.label)}", []).append(metrics[name])
    return {name: sum(values) / len(values) for name, values in figures.items()}


def observed_over_expected(outcome: Outcome) -> float:
    """Return the headline model's ratio of observed to expected events over all hospitals' rows; NaN if unknown."""
    from raysim.statistics.clinical.curves import expected_events  # imported late to start commands faster

    counts = outcome.scores.get(list(outcome.metrics)[-1])
    if counts is None:
        return math.nan
    whole = counts.together()
    expected = expected_events(whole).item()
    return whole.events.item() / expected if expected > 0 else math.nan


def taken(out: Manifest, results: Sequence[Result]) -> dict[str, float]:
    """Return the main figures of the recommended strategy, as means over seeds; empty if no strategy is recommended."""
    label = _answer(out).get("recommended")
    of_label = [result.outcome for result in results if label is not None and _is(label, result.label)]
    if not of_label:
        return {}
    headline = results[0].federation.task.headline
    figures = {
        name: [list(each.metrics.values())[-1][name] for each in of_label] for name in (headline, "worst_decile")
    }
    figures["observed_over_expected"] = [observed_over_expected(each) for each in of_label]
    return {name: sum(values) / len(values) for name, values in figures.items()}


def verdict(out: Manifest) -> dict[str, str]:
    """Return the MLflow tags of an experiment's conclusion."""
    answer = _answer(out)
    headline = answer.get("headline") or next(iter(answer.get("reasons", [])), "")
    tags = {VERDICT_TAG: str(headline), "strategy": str(answer.get("recommended") or "")}
    return {name: text for name, text in tags.items() if text}


def title(name: str, tags: Mapping[str, str]) -> str:
    """Return the name of a finished experiment in MLflow: ``name``, followed by the conclusion in ``tags``."""
    return shorten(": ".join(filter(None, (name, tags.get(VERDICT_TAG, "")))), TITLE, placeholder=" ...")


def note(out: Manifest, kind: Kind) -> str:
    """Return the conclusion of an experiment in Markdown.

    ``kind`` is the command that ran the experiment.
    """
    lines = [str(sentence) for sentence in _answer(out).get("reasons", [])]
    if (page := out.folder / "report.html").is_file():
        lines.append(f"Report: `{page.absolute()}`")
    lines.append(f"Made by `raysim {kind}`.")
    return "\n\n".join(lines)


def _answer(out: Manifest) -> dict[str, Any]:
    path = out.folder / "answer.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def _is(recommended: str, label: str) -> bool:
    """Return whether ``recommended`` is the strategy ``label``, or this label followed by a model's name."""
    return recommended == label or recommended.startswith(f"{label}, ")
