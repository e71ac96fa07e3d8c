"""Runs of a comparison that are run side by side, an actor each: the same files as one after the other, whatever
becomes of an actor.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from rich.console import Console

from raysim.api.running import compare
from tests.conftest import shared_ray

pytestmark = shared_ray("actors")

SMALL: dict[str, Any] = {
    "data": {"source": "synthetic", "hospitals": 12, "rows": 900, "features": 6},
    "training": {"rounds": 5, "batch_size": 32},
    "selection": {"name": "inverse_sqrt", "fraction": 0.5, "minimum": 2},
    "checkpoint": {"every": 2},
    "tracking": {"uri": "none"},
    "seeds": [1, 2],
}

MINE = """
import os, signal
from dataclasses import dataclass
from pathlib import Path

from raysim import Strategy


@dataclass(frozen=True)
class Mine(Strategy):
    at: int = 0
    mark: str = ""

    def aggregate(self, view, state, update):
        if view.round == self.at and not Path(self.mark).exists():
            {event}
        return super().aggregate(view, state, update)
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path.parent / "cache"))
    return tmp_path


def run_once(tree: dict[str, Any], out: str, count: int = 2, **manners: Any) -> str:
    """What a comparison prints, of which ``count`` runs are run at once."""
    console = Console(width=300, file=io.StringIO())
    compare(
        tree | {"resources": {"runs_at_once": count, "hospitals_per_actor": 6}}, out=out, console=console, **manners
    )
    return console.file.getvalue()


def without_time(path: Path) -> Any:
    """The content of a file of results without what was measured of time, and ids."""
    if path.suffix == ".csv":
        table = pd.read_csv(path)
        return table.drop(columns=[name for name in table if str(name).startswith("seconds")]).to_csv()
    if path.suffix == ".json":
        tree = json.loads(path.read_text())
        return {key: value for key, value in tree.items() if not key.startswith("seconds")}
    if path.name == "config.yaml":
        tree = yaml.safe_load(path.read_text())
        return {key: value for key, value in tree.items() if key != "resources"}
    return path.read_bytes()


OF_TIME = ("report.html", "report.json", "costs.svg", "manifest.json", "resume.json")
"""Files that hold times, digests of such, or ids among other things."""


def check_same(one: Path, other: Path) -> None:
    files = [
        {path.relative_to(out) for path in out.rglob("*") if path.is_file() and path.parent.name != "checkpoints"}
        for out in (one, other)
    ]
    assert files[0] == files[1]
    for name in files[0]:
        if name.name not in OF_TIME:
            assert without_time(one / name) == without_time(other / name), name
    listed = [list(json.loads((out / "manifest.json").read_text())["files"]) for out in (one, other)]
    assert listed[0] == listed[1], "in the same order"


def test_files_are_those_of_runs_that_are_split_over_all_actors():
    tree = SMALL | {"strategies": [{"name": "chip", "clusters": 3}, "centralized"], "reference": "chip"}
    said = run_once(tree, "together")
    assert "11 features; 2 runs at a time, each in one actor" in said
    for done in range(1, 5):
        assert f"[{done}/4] " in said
    assert "actors, " in run_once(tree, "split", 1)
    check_same(Path("together"), Path("split"))


@pytest.mark.faults
def test_a_run_whose_process_is_killed_goes_on_in_another():
    Path("mine.py").write_text(MINE.format(event="Path(self.mark).touch(); os.kill(os.getpid(), signal.SIGKILL)"))
    mine = {"class": "mine.Mine", "at": 4, "mark": str(Path("killed").absolute()), "label": "mine"}
    tree = SMALL | {"strategies": [mine, "local"], "reference": "mine", "seeds": [1]}
    said = run_once(tree, "killed_once")
    assert "the process of mine, seed 1 was lost (" in said
    assert "mine, seed 1 resumes from " in said
    run_once(tree, "undisturbed", 1, in_process=True)
    check_same(Path("killed_once"), Path("undisturbed"))
