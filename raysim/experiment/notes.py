"""The outcome of a run or comparison in MLflow's record: headline figures and a conclusion."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import Any

from raysim.engine.job import Outcome, Result
from raysim.report import tables
from raysim.report.judgement.facts.wording import plain
from raysim.storage.manifest import Kind, Manifest
from raysim.tracking.charts import VERDICT_TAG
from raysim.tracking.names import metric_label

TITLE = 120
"""Largest number of characters of an experiment's name in MLflow."""


def headlines(out: Manifest, results: Sequence[Result]) -> dict[str, float]:
    """Return the MLflow metrics of a finished comparison, by name; the values are those of ``comparison.csv``.

    They are the task's headline metric and its mean over the worst tenth of hospitals. Names with a strategy's label
    belong to its headline model; names without a label belong to the recommended model, if there is one. The
    recommended model also has the ratio of observed to expected events.
    """
    table = tables.read_csv(out.folder / "comparison.csv")
    names = (results[0].federation.task.headline, "worst_decile")
    strategies = {result.label for result in results}
    last = table[table["strategy"].isin(strategies)].drop_duplicates("strategy", keep="last")
    figures = {
        f"{name}/{metric_label(strategy)}": float(value)
        for name in names
        for strategy, value in zip(last["strategy"], last[name], strict=True)
    }
    titles = [plain(title) for title in tables.labels(table)]
    if (recommended := _answer(out).get("recommended")) not in titles:
        return figures
    taken = table.iloc[titles.index(recommended)]
    ratios = [
        observed_over_expected(result.outcome, taken["model"])
        for result in results
        if result.label == taken["strategy"]
    ]
    figures |= {name: float(taken[name]) for name in names}
    return figures | ({"observed_over_expected": sum(ratios) / len(ratios)} if ratios else {})


def observed_over_expected(outcome: Outcome, model: str | None = None) -> float:
    """Return the ratio of observed to expected events of ``model`` over all hospitals' rows; NaN if unknown.

    Without ``model``, the ratio is that of the headline model.
    """
    from raysim.statistics.clinical.curves import expected_events  # imported late to start commands faster

    counts = outcome.scores.get(model or list(outcome.metrics)[-1])
    if counts is None:
        return math.nan
    whole = counts.together()
    expected = expected_events(whole).item()
    return whole.events.item() / expected if expected > 0 else math.nan


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
