"""Paths of input files: relative to the YAML file that names them, and absolute in what is frozen."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest
import yaml
from rich.console import Console

from raysim.cli.commands import describe_data, run_one
from raysim.cli.main import _at_home
from raysim.config import reading
from raysim.config.paths import anchored, display_path, path_keys
from raysim.config.schema import Config

TABLE = {"source": "table", "silo": "site", "label": "died"}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A study in a folder of its own, and a working directory beside it."""
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "study" / "data").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    rows = pd.DataFrame({"site": list("ab") * 20, "x": range(40), "died": [0, 0, 1, 1] * 10})
    rows.to_csv(tmp_path / "study" / "data" / "stays.csv", index=False)
    monkeypatch.chdir(tmp_path / "work")


def write_config(name: str, **tree: object) -> Path:
    path = Path.cwd().parent / "study" / name
    path.write_text(yaml.safe_dump(tree))
    return path


def test_a_table_beside_its_yaml_is_found_from_anywhere():
    config = reading.resolve(write_config("c.yaml", data={**TABLE, "path": "data/stays.csv"}), reads=())
    console = Console(file=io.StringIO(), width=160)
    describe_data(config, console)
    assert "2 hospitals, 40 rows" in console.file.getvalue()
    from_below = reading.resolve(Path("../study/c.yaml"), reads=())
    stays = str(Path("../study/data/stays.csv").resolve())
    assert from_below.data.options()["path"] == config.data.options()["path"] == stays


def test_values_of_set_mappings_and_objects_are_relative_to_the_working_directory():
    path, here = write_config("c.yaml", data={**TABLE, "path": "data/stays.csv"}), str(Path("mine.csv").absolute())
    assert reading.resolve(path, ["data.path=mine.csv"], reads=()).data.options()["path"] == here
    assert reading.resolve({"data": {**TABLE, "path": "mine.csv"}}).data.options()["path"] == here
    config = Config.model_validate({"data": {**TABLE, "path": "mine.csv"}})
    assert reading.resolve(config).data.options()["path"] == here
    other = reading.resolve(path, ["data.source=yaib", "data.eicu=tables"], reads=())
    assert other.data.options()["eicu"] == str(Path("tables").absolute())


def test_other_configurations_and_tables_of_hospitals_are_too():
    mine = write_config("mine.yaml", strategy="fedprox", data={"hospitals": 6, "rows": 300})
    tree = {
        "data": {"hospitals": 6, "rows": 300},
        "strategies": ["fedavg", {"from": "mine.yaml", "label": "tuned"}],
        "system": {"table": "speeds.csv", "availability": 0.9},
    }
    config = reading.resolve(write_config("c.yaml", **tree), reads=reading.COMPARISON)
    assert config.strategies[1].from_path == mine
    assert config.system is not None
    assert config.system.table == mine.parent / "speeds.csv"
    assert [each.strategy.name for each in reading.compared(config)] == ["fedavg", "fedprox"]


def test_a_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/me")
    tree = {
        "data": {"source": "yaib", "path": "~/cohort", "eicu": "~/eicu"},
        "system": {"trace": "~/trace.csv"},
        "strategies": [{"from": "~/c.yaml"}],
        "checkpoint": {"path": "~/kept"},
        "tracking": {"uri": "sqlite:///~/runs.db"},
    }
    assert anchored(tree, Path("/study")) == {
        "data": {"source": "yaib", "path": "/home/me/cohort", "eicu": "/home/me/eicu"},
        "system": {"trace": "/home/me/trace.csv"},
        "strategies": [{"from": "/home/me/c.yaml"}],
        "checkpoint": {"path": "/home/me/kept"},
        "tracking": {"uri": "sqlite:////home/me/runs.db"},
    }


def test_arguments_of_commands_name_the_home_folder_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/me")
    given = ["run", "~/c.yaml", "--out=~/runs", "--set", "data.path=~/x.csv", "--seed", "1", "~"]
    said = [_at_home(argument) for argument in given]
    assert said == ["run", "/home/me/c.yaml", "--out=/home/me/runs", *given[3:]]


def test_what_is_no_relative_path_stays():
    assert anchored({"data": {"path": "/a/b.csv"}}, Path("/study"))["data"]["path"] == "/a/b.csv"
    assert anchored({"data": {"path": "s3://bucket/b.csv"}}, Path("/study"))["data"]["path"] == "s3://bucket/b.csv"
    assert anchored({"data": "synthetic", "strategies": "fedavg"}, Path("/study")) == {
        "data": "synthetic",
        "strategies": "fedavg",
    }
    assert anchored({"data": {"source": "nobody", "path": "a.csv"}}, Path("/study"))["data"]["path"] == "/study/a.csv"


def test_which_keys_are_paths():
    assert path_keys("table") == ("path",)
    assert set(path_keys("yaib")) == {"path", "eicu"}


def test_a_frozen_configuration_means_the_same_rows_wherever_it_is_read(monkeypatch: pytest.MonkeyPatch):
    path = write_config("c.yaml", data={**TABLE, "path": "data/stays.csv"}, training={"rounds": 1}, strategy="fedavg")
    config = reading.resolve(path, ["tracking.uri=none"], reads=())
    out = Path("out").absolute()
    run_one(config, Console(file=io.StringIO()), out, in_process=True, verbose=False)
    monkeypatch.chdir("/")
    again = reading.resolve(out / "config.yaml")
    assert Path(str(again.data.options()["path"])).is_file()
    assert again.frozen()["data"] == reading.resolve(path).frozen()["data"]


def test_people_read_relative_paths():
    assert display_path(Path("a/b.yaml").absolute()) == "a/b.yaml"
    assert display_path(Path("/etc/b.yaml")) == "/etc/b.yaml"
