"""What MLflow's record of a run or comparison says of its outcome: headline figures, and the answer in words."""

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
"""The most characters of the name by which MLflow lists an experiment."""


def headlines(results: Sequence[Result]) -> dict[str, float]:
    """Of each strategy, the headline figure and the worst decile of its headline model: means over seeds, by name."""
    figures: dict[str, list[float]] = {}
    for result in results:
        metrics = list(result.outcome.metrics.values())[-1]
        for name in (result.federation.task.headline, "worst_decile"):
            figures.setdefault(f"{name}/{metric_label(result.label)}", []).append(metrics[name])
    return {name: sum(values) / len(values) for name, values in figures.items()}


def observed_over_expected(outcome: Outcome) -> float:
    """Events per event that the headline model expects, over the rows of all hospitals; NaN where that is unknown."""
    from raysim.statistics.clinical.curves import expected_events  # commands start without it

    counts = outcome.scores.get(list(outcome.metrics)[-1])
    if counts is None:
        return math.nan
    whole = counts.together()
    expected = expected_events(whole).item()
    return whole.events.item() / expected if expected > 0 else math.nan


def taken(out: Manifest, results: Sequence[Result]) -> dict[str, float]:
    """Figures of the strategy that the answer of a comparison takes, means over seeds; empty where it takes none."""
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
    """The tags that say what an experiment came to: the headline of its answer, and the strategy that it takes."""
    answer = _answer(out)
    headline = answer.get("headline") or next(iter(answer.get("reasons", [])), "")
    tags = {VERDICT_TAG: str(headline), "strategy": str(answer.get("recommended") or "")}
    return {name: text for name, text in tags.items() if text}


def title(name: str, tags: Mapping[str, str]) -> str:
    """What MLflow calls an experiment that has ended: its ``name`` and the verdict in its ``tags``."""
    return shorten(": ".join(filter(None, (name, tags.get(VERDICT_TAG, "")))), TITLE, placeholder=" ...")


def note(out: Manifest, kind: Kind) -> str:
    """What an experiment of a ``kind`` comes to, in Markdown: the answer and its report, where there are any."""
    lines = [str(sentence) for sentence in _answer(out).get("reasons", [])]
    if (page := out.folder / "report.html").is_file():
        lines.append(f"Report: `{page.absolute()}`")
    lines.append(f"Made by `raysim {kind}`.")
    return "\n\n".join(lines)


def _answer(out: Manifest) -> dict[str, Any]:
    """The content of ``answer.json``; empty where there is none."""
    path = out.folder / "answer.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def _is(recommended: str, label: str) -> bool:
    """Whether the strategy that an answer names is this one; it may name the model used, too."""
    return recommended == label or recommended.startswith(f"{label}, ")
