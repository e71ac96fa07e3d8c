"""``raysim predict``: what it writes, and what it refuses in a line; and which folders scores come from."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from raysim.cli import main as cli
from raysim.core.csv_files import read_csv
from raysim.core.errors import ConfigError
from raysim.serving.export import export
from raysim.serving.predictor import Predictor
from raysim.storage.manifest import Manifest
from raysim.storage.tables import write_table
from tests.serving.runs import ROWS, folder_of, stays


def command(arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What a command that ends well prints."""
    monkeypatch.setattr(sys, "argv", ["raysim", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    assert ended.value.code in (0, None), said.err
    return said.out


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """The line that refuses a command."""
    monkeypatch.setattr(sys, "argv", ["raysim", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    assert ended.value.code == 2, said
    # Warnings about the table come before: a file is written last.
    (line,) = [each for each in said.err.splitlines() if not each.startswith("table: column 'unit' has 'ZICU'")]
    return line.removeprefix("raysim: ")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_command_writes_a_row_for_each(
    ending: str, place: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = folder_of(place, "local"), tmp_path / f"scores.{ending}"
    out.write_text("an earlier file")
    said = command(["predict", str(folder), str(place / "stays.csv"), "--out", str(out)], capsys, monkeypatch)
    assert said.splitlines() == [f"{ROWS} rows scored by 4 models", f"files: {out}"]
    written = pd.read_parquet(out) if ending == "parquet" else pd.read_csv(out, dtype={"hospital": str})
    pd.testing.assert_frame_equal(
        written, Predictor.open(folder).predict(stays()), check_dtype=False, rtol=0, check_exact=True
    )
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_a_name_that_a_spreadsheet_would_run_is_written_as_text(place: Path, tmp_path: Path) -> None:
    scored = Predictor.open(folder_of(place, "fedavg")).predict(stays(), hospital="=1+1")
    write_table(scored, tmp_path / "scores.csv", "--out")
    assert set(pd.read_csv(tmp_path / "scores.csv")["hospital"]) == {"'=1+1"}
    assert set(read_csv(tmp_path / "scores.csv")["hospital"]) == {"=1+1"}


def test_the_command_takes_a_hospital_and_a_model(
    place: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = folder_of(place, {"name": "chip", "clusters": 2}), tmp_path / "scores.csv"
    arguments = ["predict", str(folder), str(place / "stays.csv"), "--out", str(out)]
    command([*arguments, "--hospital", "11", "--model", "cluster"], capsys, monkeypatch)
    written = pd.read_csv(out, dtype={"hospital": str})
    assert set(written["hospital"]) == {"11"}
    assert len(set(written["scored_by"])) == 1
    assert written["scored_by"][0].startswith("cluster/")


def test_the_command_refuses_in_a_line(
    place: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(place, "local")
    table = tmp_path / "stays.csv"
    shutil.copy(place / "stays.csv", table)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.csv").write_text("")
    monkeypatch.chdir(tmp_path)

    def line(*arguments: str) -> str:
        return refusal(["predict", *arguments], capsys, monkeypatch)

    run, good = str(folder), ["stays.csv", "--out", "scores.csv"]
    assert line("absent", *good) == "absent: no such folder; name the folder of a finished run"
    assert line("empty", *good) == "empty: holds no run; name the folder of a finished run"
    assert line(run, "stays.csv", "--out", "empty") == "--out: empty is a folder; name a .csv or .parquet file"
    assert line(run, "stays.csv", "--out", "scores.txt").startswith("--out: scores.txt is not .csv or .parquet")
    assert line(run, "stays.csv", "--out", "no/scores.csv").startswith("--out: no/scores.csv is in a folder that does")
    assert line(run, "stays.csv", "--out", "/proc/s.csv").startswith("--out: /proc/s.csv cannot be written (")
    assert line(run, "stays.csv", "--out", "./stays.csv") == "--out: stays.csv is the table itself; name another file"
    (tmp_path / "also.csv").write_bytes((tmp_path / "stays.csv").read_bytes())
    assert line(run, "*s*.csv", "--out", "also.csv") == "--out: also.csv is a file of the table; name another file"
    assert (tmp_path / "also.csv").read_bytes() == (tmp_path / "stays.csv").read_bytes()
    (tmp_path / "also.csv").unlink()
    own = folder / "hospitals.csv"
    before = own.read_bytes()
    assert line(run, "stays.csv", "--out", str(own)).endswith(
        "is one of the files that raysim wrote in " + f"{folder}; name another"
    )
    assert own.read_bytes() == before
    assert line(run, "stay.csv", "--out", "scores.csv") == "table: 'stay.csv' does not exist; did you mean 'stays.csv'?"
    assert line(run, "empty.csv", "--out", "scores.csv").startswith("table: 'empty.csv' is empty; it needs a line of")
    assert line(run, *good, "--model", "persona").startswith("--model: 'persona' was not used at any hospital in ")
    assert line(run, *good, "--hospital", "13").startswith("table: hospital '13' was not in the run")
    assert not (tmp_path / "scores.csv").exists()


def test_folders_that_hold_no_one_run(place: Path, tmp_path: Path) -> None:
    whole = folder_of(place, "fedavg")
    stopped = tmp_path / "stopped"
    shutil.copytree(whole, stopped)
    (stopped / "preprocessing.json").unlink()
    with pytest.raises(
        ConfigError, match=r"stopped: the run has no models yet; finish it with 'raysim resume .*stopped'$"
    ):
        Predictor.open(stopped)
    manifest = json.loads((stopped / "manifest.json").read_text())
    (stopped / "manifest.json").write_text(json.dumps(manifest | {"kind": "study"}))
    with pytest.raises(ConfigError, match=r"stopped: holds a study, which stores no models; name the folder of a"):
        Predictor.open(stopped)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("scale", 0.0, "the scale of column '.*' is 0, not a number above 0"),
        ("scale", float("nan"), "the scale of column '.*' is nan, not a number above 0"),
        ("mean", float("nan"), "the mean of column '.*' is nan, not a finite number"),
        ("fill", float("inf"), "the fill of column '.*' is inf, not a finite number"),
    ],
)
def test_a_preprocessing_by_which_no_row_has_features_is_refused(
    key: str, value: float, why: str, place: Path, tmp_path: Path
) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(folder_of(place, "fedavg"), changed)
    tree = json.loads((changed / "preprocessing.json").read_text())
    next(column for column in tree["columns"] if column["kind"] == "numeric")[key] = value
    (changed / "preprocessing.json").write_text(json.dumps(tree))
    with pytest.raises(ConfigError, match=rf"preprocessing.json: cannot be used \({why}\); run again"):
        export(Predictor.open(changed), tmp_path / "out", "torch", None, None)
    assert not (tmp_path / "out").exists()


def test_of_a_comparison_one_run_is_to_be_named(place: Path, tmp_path: Path) -> None:
    Manifest.begin(tmp_path, "compare")
    for label in ("local", "fedavg"):
        shutil.copytree(folder_of(place, label), tmp_path / "runs" / label / "seed-42")
    with pytest.raises(ConfigError) as refused:
        Predictor.open(tmp_path)
    assert str(refused.value) == (
        f"{tmp_path}: holds several runs; name the folder of one: runs/fedavg/seed-42, runs/local/seed-42"
    )
    one = Predictor.open(tmp_path / "runs/fedavg/seed-42").predict(stays())
    pd.testing.assert_frame_equal(one, Predictor.open(folder_of(place, "fedavg")).predict(stays()))
