"""The checklist has every item of TRIPOD+AI by number, filled where the results say something, open elsewhere."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest

import raysim
from raysim.cli.main import main
from raysim.core.errors import ConfigError
from raysim.report.checklist import CLUSTER, ITEMS, OPEN, checklist
from raysim.report.pages.again import rewritten
from tests.experiment.test_scores import table


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison in which hospitals were left out."""
    out = tmp_path_factory.mktemp("checklist") / "out"
    config = {
        "data": {"source": "table", "silo": "hospital", "label": "died", "drop": ["points"]},
        "strategies": ["fedavg", "local"],
        "seeds": [0],
        "training": {"rounds": 1},
        "evaluation": {"unseen": True},
        "tracking": {"uri": "none"},
    }
    raysim.compare(config, data=table(4, 60).rename(columns={"old": "pa|ir"}), out=out, in_process=True)
    return out


def test_the_items_are_those_of_the_statement() -> None:
    numbers = [number for number, _ in ITEMS]
    assert len(numbers) == len(set(numbers)) == 52
    assert sorted({int(re.match(r"\d+", number)[0]) for number in numbers}) == list(range(1, 28))
    of_clusters = [number for number, _, _ in CLUSTER]
    assert len(of_clusters) == len(set(of_clusters)) == 37
    assert sorted({int(re.match(r"\d+", number)[0]) for number in of_clusters}) == list(range(1, 20))
    assert {at for _, _, at in CLUSTER} <= {*numbers, ""}


def test_what_results_say_is_filled_and_the_rest_is_open(folder: Path) -> None:
    first, _, second = checklist(folder, None).read_text().partition("## TRIPOD-Cluster")
    rows = [line.split(" | ", 2) for line in first.splitlines() if line.startswith("| ")]
    of_clusters = {line.split(" | ")[0][2:]: line for line in second.splitlines() if line.startswith("| ")}
    assert of_clusters["13b"].endswith("| see 23b |")
    assert of_clusters["7b"].endswith(f"| {OPEN} |")
    assert {number for number, _, _ in CLUSTER} <= set(of_clusters)
    found = {cells[0].removeprefix("| "): cells[2].removesuffix(" |") for cells in rows if len(cells) == 3}
    assert set(found) >= {number for number, _ in ITEMS}
    assert found["6a"] == "4 hospitals."
    assert r"x, z, pa\|ir" in found["9b"]
    assert "points" in found["9a"]
    assert "pa\\|ir" in found["11"]
    assert "left out in turn" in found["23b"]
    assert found["23a"].endswith("Each hospital's figures are in hospitals.csv, and in clinical.csv of each run.")
    assert "hospitals left out in turn" in found["12d"]
    for number in ("1", "17", "18a", "19", "25"):
        assert found[number] == OPEN
    text = (folder / "checklist.md").read_text()
    assert f"{sum(found[number] != OPEN for number, _ in ITEMS)} of 52 items" in text


def test_a_run_has_one_too_and_other_folders_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "mine.md"
    run = str(folder / "runs" / "fedavg" / "seed-0")
    monkeypatch.setattr(sys, "argv", ["raysim", "report", run, "--checklist", "--out", str(out)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert capsys.readouterr().out == f"checklist: {out}\n"
    assert "*open*" in out.read_text()
    with pytest.raises(ConfigError, match=r"has no results to fill a checklist from .*; name the folder"):
        checklist(tmp_path, None)
    for name in ("config.yaml", "manifest.json", "resume.json"):  # as a command leaves it that was killed
        shutil.copy(folder / name, tmp_path / name)
    for refused in (checklist, lambda dead, out: rewritten(dead, None, out)):
        with pytest.raises(
            ConfigError, match=f"; it was stopped before its end; continue with raysim resume {tmp_path}"
        ):
            refused(tmp_path, None)
    shutil.copy(folder / "report.json", tmp_path / "report.json")  # finished, by a version without answer.json
    with pytest.raises(ConfigError, match=r"\(FileNotFoundError\); repeat the run with this version of raysim$"):
        checklist(tmp_path, None)
    with pytest.raises(ConfigError, match="--out"):
        checklist(folder, folder / "hospitals.csv")
    assert len(pd.read_csv(folder / "hospitals.csv"))


def test_a_number_has_no_risks(tmp_path: Path) -> None:
    config = {
        "data": {"source": "table", "silo": "hospital", "label": "z", "task": "regression", "drop": ["points"]},
        "strategies": ["fedavg"],
        "model": {"name": "linear_regression"},
        "seeds": [0],
        "training": {"rounds": 1},
        "tracking": {"uri": "none"},
    }
    raysim.compare(config, data=table(4, 60), out=tmp_path / "out", in_process=True)
    first = checklist(tmp_path / "out", None).read_text().partition("## TRIPOD-Cluster")[0]
    found = {line.split(" | ")[0][2:]: line for line in first.splitlines() if line.startswith("| ")}
    assert "Mean absolute error, RMSE, R², bias; methods" in found["12e"]
    assert "Spread of hospitals' mean absolute error by Q and tau." in found["12d"]
    assert found["15"].endswith(f"| {OPEN} |")
    assert "clinical.csv" not in first
