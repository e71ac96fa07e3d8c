"""What MLflow's record of a run or comparison says of its outcome: headline figures, and the answer in words."""

from __future__ import annotations

import json
from collections.abc import Sequence

from raysim.engine.job import Result
from raysim.storage.manifest import Kind, Manifest
from raysim.tracking.names import metric_label


def headlines(results: Sequence[Result]) -> dict[str, float]:
    """Of each strategy, the headline figure and the worst decile of its headline model: means over seeds, by name."""
    figures: dict[str, list[float]] = {}
    for result in results:
        metrics = list(result.outcome.metrics.values())[-1]
        for name in (result.federation.task.headline, "worst_decile"):
            figures.setdefault(f"{name}/{metric_label(result.label)}", []).append(metrics[name])
    return {name: sum(values) / len(values) for name, values in figures.items()}


def note(out: Manifest, kind: Kind) -> str:
    """What an experiment of a ``kind`` comes to, in Markdown: the answer and its report, where there are any."""
    lines = []
    if (answer := out.folder / "answer.json").is_file():
        lines += [str(sentence) for sentence in json.loads(answer.read_text())["reasons"]]
    if (page := out.folder / "report.html").is_file():
        lines.append(f"Report: `{page.absolute()}`")
    lines.append(f"Made by `raysim {kind}`.")
    return "\n\n".join(lines)
