"""The commands that are disturbed: their configurations, what they have finished, and what they must end with."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

Tree = dict[str, Any]

ROUNDS = 24
EVERY = 4
"""Runs stop in every so many-th round for a fault."""
PACE = 0.01
"""Seconds that a round sleeps."""
TRIALS, SHORT = 6, 8
"""Of a sweep, and the rounds of each, which stops once."""

BASE: Tree = {
    "name": "soak",
    "data": {"source": "synthetic", "hospitals": 6, "rows": 360, "features": 4},
    "training": {"rounds": ROUNDS, "batch_size": 32},
    "evaluation": {"every": 12},
    "selection": {"name": "inverse_sqrt", "fraction": 0.5, "minimum": 2},
    "checkpoint": {"every": 2},
    "tracking": {"uri": "none"},
    "resources": {"timeout": 6, "runs_at_once": 1, "head_start": False},
}


@dataclass(frozen=True)
class Subject:
    """A ``command`` of raysim and its configuration, which has ``parts`` runs or trials."""

    command: str
    parts: int
    tree: Tree

    def configured(self, gate: Path, **sections: Any) -> Tree:
        """Its configuration, with that gate and other sections."""
        tree = copy.deepcopy(self.tree) | sections
        for section in tree.get("strategies", [tree.get("strategy")]):
            section["gate"] = str(gate)
        return tree

    def begun(self, out: Path) -> bool:
        """Whether something of it is finished on disk: a trial, a run, or a checkpoint of the run that goes on."""
        if self.command == "sweep":
            return finished_trials(out) > 0
        return finished_runs(out) > 0 or bool(open_checkpoints(out))

    def ended(self, out: Path) -> bool:
        """Whether nothing is left to do."""
        if self.command == "sweep":
            return finished_trials(out) >= TRIALS
        return is_finished(out)


def _strategy(name: str, every: int = EVERY, **fields: Any) -> Tree:
    return {"class": f"paced.{name}", "pace": PACE, "every": every, "gate": "", **fields}


SPLIT = {"train": 0.6, "validation": 0.2, "test": 0.2}

SUBJECTS = {
    subject.command: subject
    for subject in (
        Subject("run", 1, BASE | {"strategy": _strategy("PacedChip", clusters=2)}),
        Subject(
            "compare",
            2,
            BASE
            | {
                "strategies": [
                    _strategy("PacedAvg", label="fedavg"),
                    _strategy("PacedChip", label="chip", clusters=2),
                ],
                "seeds": [1],
                "reference": "fedavg",
            },
        ),
        Subject(
            "curve",
            2,
            BASE
            | {
                "strategies": [_strategy("PacedChip", label="chip")],
                "seeds": [1],
                "reference": "chip, clusters 2",
                "curve": {"field": "clusters", "values": [2, 3]},
            },
        ),
        Subject(
            "sweep",
            TRIALS,
            BASE
            | {
                "data": {**BASE["data"], "split": SPLIT},
                "training": {**BASE["training"], "rounds": SHORT},
                "strategy": _strategy("PacedChip", every=SHORT - 2, clusters=2),
                "sweep": {
                    "space": {"strategy.lam": {"loguniform": [0.01, 1.0]}},
                    "objectives": {"auroc": "max"},
                    "searcher": "random",
                    "trials": TRIALS,
                    "concurrent": 2,
                    "retries": 9,
                },
            },
        ),
    )
}


def is_finished(folder: Path) -> bool:
    """Whether the ticket of a run or comparison says so."""
    try:
        return bool(json.loads((folder / "resume.json").read_text())["finished"])
    except (FileNotFoundError, json.JSONDecodeError):
        return False


def run_folders(out: Path) -> list[Path]:
    """The folders of a command's runs: its own, or those of a comparison."""
    return sorted(out.glob("runs/*/seed-*")) or [out]


def finished_runs(out: Path) -> int:
    """How many runs have ended."""
    return sum(is_finished(folder) for folder in run_folders(out))


def open_checkpoints(out: Path) -> list[Path]:
    """The checkpoints of the run that is going on, by round."""
    for folder in run_folders(out):
        if (folder / "resume.json").exists() and not is_finished(folder):
            return sorted(folder.glob("checkpoints/round-*"))
    return []


def finished_trials(out: Path) -> int:
    """How many trials the journal holds."""
    try:
        return (out / "journal.jsonl").read_bytes().count(b"\n") - 1
    except FileNotFoundError:
        return 0


def difference(whole: Path, out: Path) -> str:
    """The first file of results that is not as in ``whole``, or nothing. Seconds are left out."""
    for name in _results(whole):
        if not (out / name).exists():
            return f"{name} is not there"
        if not _alike(whole / name, out / name):
            return f"{name} differs"
    return ""


def _results(whole: Path) -> Iterator[str]:
    for path in sorted(whole.rglob("*")):
        kept = path.name in ("hospitals.csv", "egress.csv", "curve.csv", "rounds.csv", "trials.csv")
        if (kept or path.name == "models.safetensors") and "checkpoints" not in path.parts:
            yield path.relative_to(whole).as_posix()


def _alike(one: Path, other: Path) -> bool:
    if one.name not in ("rounds.csv", "trials.csv"):
        return one.read_bytes() == other.read_bytes()
    tables = [pd.read_csv(path).drop(columns=["seconds", "attempts"], errors="ignore") for path in (one, other)]
    if one.name == "trials.csv":
        tables = [table.sort_values("trial", ignore_index=True) for table in tables]
    return tables[0].equals(tables[1])
