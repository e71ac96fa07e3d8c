"""The TRIPOD+AI and TRIPOD-Cluster checklists of a finished run or comparison.

Items that a run's files can answer are filled in; all others stay open. Items are paraphrased, and have the numbers of
the published checklists:

- TRIPOD+AI: Collins and others, BMJ 2024;385:e078378, checklist of 11 January 2024.
- TRIPOD-Cluster: Debray and others, BMJ 2023;380:e071018.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from raysim.core import bounded
from raysim.core.atomic import replacing
from raysim.core.errors import ConfigError
from raysim.core.words import counted, listed, some
from raysim.report.pages.again import FILE as PAGE
from raysim.report.pages.again import instead_of
from raysim.storage.manifest import check_plain, spare

FILE = "checklist.md"

OPEN = "*open*"
"""The text printed for an item that the results of a run cannot answer."""

MOST = 40
"""The largest number of names in an answer; the rest are counted."""

_TRIPOD = yaml.safe_load((Path(__file__).parent / "templates" / "tripod.yaml").read_text(encoding="utf-8"))
ITEMS: list[list[str]] = _TRIPOD["TRIPOD+AI"]
"""For each TRIPOD+AI item, its number and its topic."""

CLUSTER: list[list[str]] = _TRIPOD["TRIPOD-Cluster"]
"""For each TRIPOD-Cluster item, its number, its topic, and the number of the TRIPOD+AI item that answers it; empty if
there is none."""


@dataclass(frozen=True)
class _Run:
    folder: Path
    config: Mapping[str, Any]
    answer: Mapping[str, Any]
    provenance: Mapping[str, Any]
    prepared: Mapping[str, Any]

    def line(self, fact: str) -> str:
        """Return the decision card's sentence on a ``fact``, such as calibration; empty if there is none."""
        return " ".join(line["text"] for line in self.answer["lines"] if line["fact"] == fact)

    def figure(self, fact: str) -> Mapping[str, Any]:
        """Return the numbers of the decision card's line on a ``fact``; empty if there are none."""
        return next((line["figure"] or {} for line in self.answer["lines"] if line["fact"] == fact), {})

    def note(self, begin: str) -> str:
        return next((note for note in self.provenance["notes"] if note.startswith(begin)), "")

    def at(self, *keys: str) -> Any:
        """Return a value of the configuration; None if it is not set."""
        value: Any = self.config
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value


def checklist(folder: Path, out: Path | None) -> Path:
    """Write the checklists of the run or comparison in ``folder`` to a file, and return its path.

    Raises ``ConfigError`` for a folder without results, and for an output file that cannot be written or would replace
    a result.
    """
    check_plain(folder)
    try:
        answer = bounded.read_json(folder / "answer.json")
        page = bounded.read_json(folder / "report.json")["values"]
        config = yaml.safe_load((folder / "config.yaml").read_text())
        fitted = sorted(folder.glob("preprocessing.json")) or sorted(folder.glob("runs/*/*/preprocessing.json"))
        run = _Run(folder, config, answer, page["provenance"], bounded.read_json(fitted[0]))
        text = written(run)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        instead = "repeat the run with this version of raysim" if (folder / PAGE).exists() else instead_of(folder)
        raise ConfigError(
            f"RUN: {folder} has no results to fill a checklist from ({type(error).__name__}); {instead}"
        ) from None
    target = out or folder / FILE
    spare(target, "--out")
    try:
        with replacing(target) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out: {target} cannot be written ({error.strerror}); name a writable file") from None
    return target


def written(run: _Run) -> str:
    """Format the checklist as Markdown."""
    found = {number: text for number, text in answers(run).items() if text}
    filled = sum(number in found for number, _ in ITEMS)
    rows = [f"| {number} | {topic} | {_cell(found.get(number, OPEN))} |" for number, topic in ITEMS]
    further = [f"| {number} | {topic} | {f'see {at}' if at in found else OPEN} |" for number, topic, at in CLUSTER]
    return "\n".join(
        [
            f"# TRIPOD+AI and TRIPOD-Cluster: {run.answer['predicts']}",
            "",
            f"{filled} of {len(ITEMS)} items are filled from the results; check each, and add what they cannot know. "
            "The others are for the authors. Items are in short words: read the statements themselves "
            "(doi:10.1136/bmj-2023-078378, doi:10.1136/bmj-2022-071018).",
            "",
            "## TRIPOD+AI",
            "",
            "| item | | answer |",
            "|---|---|---|",
            *rows,
            "",
            "## TRIPOD-Cluster",
            "",
            "| item | | answer, in TRIPOD+AI above |",
            "|---|---|---|",
            *further,
            "",
        ]
    )


def answers(run: _Run) -> dict[str, str]:
    """Return the answers to TRIPOD+AI items by item number; items without an answer in the run's files are left out."""
    provenance, names = run.provenance, [column["name"] for column in run.prepared["columns"]]
    flagged = [column["name"] for column in run.prepared["columns"] if column["flagged"]]
    strategies = run.at("strategies") or [run.at("strategy")]
    labels = [each if isinstance(each, str) else str(each.get("label") or each.get("name")) for each in strategies]
    versions = listed([f"{name} {version}" for name, version in provenance["versions"].items()])
    numeric, risks = "mae" in run.figure("quality"), run.answer["calibration"] is not None
    thresholds = run.at("evaluation", "clinical", "thresholds") if risks else None
    left_out = "left out in turn" in run.line("unseen")
    parts = [f"{rows:,} to {part}" for part, rows in provenance["rows"].items() if rows]
    updated = run.at("recalibrate")
    return {
        "5a": f"{provenance['notes'][0]}." if provenance["notes"] else "",
        "6a": f"{counted(provenance['hospitals'], 'hospital')}.",
        "7": _sentence(run.note("preprocessing"), run.line("leaks")),
        "8a": f"{run.answer['predicts']}. Time horizon and assessment: {OPEN}",
        "9a": _choice(names, run.at("data", "drop") or []),
        "9b": f"{some(names, MOST)}. When and how each is measured: {OPEN}",
        "10": _sentence(
            run.line("predicts"), run.line("limits"), "No calculation beforehand (raysim design makes one)."
        ),
        "11": _missing(flagged, str(run.prepared["method"])),
        "12a": _sentence(run.note("split")),
        "12b": f"Numbers: {run.prepared['method']}; categories: an indicator each.",
        "12c": f"{run.at('model', 'name')}, trained by {listed(labels)}, {run.at('training', 'rounds')} rounds at most"
        f"{', values chosen on validation rows' if run.at('tune') else ', nothing tuned'}; test rows took no part.",
        "12d": f"Spread of hospitals' {'mean absolute error' if numeric else 'AUROC'} by Q and tau"
        f"{', of calibration by a simulated Q' if risks else ''}"
        f"{'; hospitals left out in turn, with the interval of the next one' if left_out else ''}.",
        "12e": f"{'Mean absolute error, RMSE, R², bias' if numeric else 'AUROC with 95 % intervals, log loss'}"
        f"{', observed over expected events, calibration in the large and slope, net benefit' if risks else ''}; "
        "methods by paired differences over hospitals, Holm over pairs.",
        "12f": f"Recalibration ({updated}) at each hospital." if updated else "None.",
        "12g": "raysim predict, or a folder of raysim export, which works without raysim.",
        "13": _imbalance(run.at("training", "class_weights")),
        "15": f"A probability; reported at thresholds {listed([f'{each:g}' for each in thresholds])}."
        if thresholds
        else "",
        "18f": f"{versions}; config.yaml runs it again, data digest {provenance['fingerprint']}.",
        "20a": run.line("predicts"),
        "21": f"{listed(parts)} (rows)." if parts else "",
        "22": _model(run.folder),
        "23a": _sentence(
            run.line("quality"),
            run.line("calibration"),
            run.line("fairness"),
            f"Each hospital's figures are in hospitals.csv{', and in clinical.csv of each run' if risks else ''}",
        ),
        "23b": run.line("unseen") if left_out else "",
        "24": "Figures of the model `recalibrated` in comparison.csv." if updated else "",
        "26": _sentence(run.line("limits"), run.line("training")),
    }


def _choice(names: list[str], dropped: list[str]) -> str:
    left = f"; left out by name: {some(dropped, MOST)}" if dropped else ""
    return f"The source's {counted(len(names), 'column')}{left}. None was selected by the outcome."


def _missing(flagged: list[str], method: str) -> str:
    if not flagged:
        return "No predictor has missing values in training rows."
    filled = "left as they are" if method == "none" else f"filled by preprocessing '{method}', with an indicator each"
    return f"Missing in training rows: {some(flagged, MOST)}; {filled}. No row was left out for a missing predictor."


def _imbalance(weights: Any) -> str:
    return "No method was used." if weights in (None, "none") else f"Class weights: {weights}."


def _model(folder: Path) -> str:
    fitted = sorted(folder.rglob("coefficients.csv"))
    where = f"; coefficients in {fitted[0].relative_to(folder).as_posix()}" if fitted else ""
    return f"Parameters in models.safetensors, preprocessing in preprocessing.json of each run{where}."


def _sentence(*texts: str) -> str:
    return " ".join(f"{text[:1].upper()}{text[1:].rstrip('.')}." for text in texts if text)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
