"""What objects say of themselves, and one line for what Python code hands over that cannot be used."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import raysim
from raysim.data.raw_columns import RawColumns
from tests.conftest import empty_store

ROWS = 120


def table(**columns: Any) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    age = rng.normal(60, 10, ROWS).round(4)
    features = {"site": np.repeat(["x", "y", "z"], ROWS // 3), "age": age}
    return pd.DataFrame(features | {"died": (age + rng.normal(0, 8, ROWS) > 62).astype(int)} | columns)


CONFIG = {
    "data": {"silo": "site", "label": "died"},
    "training": {"rounds": 1},
    "tracking": {"uri": "none"},
}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> raysim.api.results.RunResult:
    return raysim.run(CONFIG, data=table(), out=tmp_path_factory.mktemp("said") / "run", in_process=True)


def test_what_is_public_is_listed():
    assert "run" in dir(raysim)
    assert set(dir(raysim)) == {*raysim.__all__, "__version__"}
    for name in dir(raysim):
        assert getattr(raysim, name) is not None


def test_a_run_without_a_strategy_is_federated_averaging_of_all(result: Any):
    assert (result.config.strategy.name, result.config.selection.name) == ("fedavg", "all")


def test_results_say_their_answer_and_no_rows(result: Any, tmp_path: Path):
    headline = result.answer["headline"]
    assert repr(result) == f"<fedavg, seed 42: {headline} ({result.folder})>"
    first, second, *_, last = str(result).splitlines()
    assert (first, second) == ("fedavg, seed 42", headline)
    assert last == f"files: {result.folder}"
    compared = raysim.compare(
        CONFIG, data=table(), strategies=["fedavg", "local"], seed=1, out=tmp_path / "c", in_process=True
    )
    assert repr(compared) == f"<raysim: 2 strategies x 1 seed: {compared.answer['headline']} ({compared.folder})>"
    inner = compared.run("local")
    assert repr(inner).startswith("<local, seed 1: ")
    ages = {f"{age:.4f}" for age in table()["age"]}
    for each in (result, compared, inner, result._predictor, raysim.describe(CONFIG, data=table()).summary):
        assert not any(age in repr(each) + str(each) for age in ages)
    columns = repr(RawColumns.of(table()[["age"]]))
    assert "60" not in re.sub("0x[0-9a-f]+", "", columns)  # the address of an object may hold any digits
    assert repr(raysim.api.results.RunResult(tmp_path / "none")) == f"RunResult('{tmp_path / 'none'}')"


def test_numbers_and_texts_that_no_table_holds_are_one_line(result: Any):
    def said(frame: pd.DataFrame) -> str:
        with pytest.raises(raysim.RaysimError) as raised:
            raysim.describe(CONFIG, data=frame)
        assert "\n" not in str(raised.value)
        return str(raised.value).encode().decode()

    assert "column 'age' holds 2.03704e+90 in row 1, not a finite float32 number" in said(table(age=[2**300] * ROWS))
    assert "1 features" in repr(raysim.describe(CONFIG, data=table(age=[2**80 + k for k in range(ROWS)])))
    half = pd.Series(["\ud800"] * ROWS, dtype=object)
    assert said(table().assign(name=half)).startswith(
        "data: column 'name' of the data frame holds an invalid Unicode character"
    )
    named = table().assign(half=1.0)
    named.columns = pd.Index(["site", "age", "died", "\ud800"], dtype=object)
    assert (
        said(named) == r"data: the data frame has a column '\ud800', whose name cannot be written to a file; rename it"
    )
    for call in (
        lambda: raysim.describe({**CONFIG, "name": "\ud800"}, data=table()),
        lambda: raysim.describe(CONFIG | {"data": {"silo": "\ud800", "label": "died"}}, data=table()),
        lambda: raysim.describe("\ud800"),
        lambda: raysim.run(CONFIG, data=table(), out="\ud800", in_process=True),
        lambda: raysim.load("\ud800"),
        lambda: result.predict("\ud800"),
        lambda: result.predict(table(), "\ud800"),
    ):
        with pytest.raises(raysim.RaysimError) as raised:
            call()
        str(raised.value).encode()


def test_a_hospital_in_the_index_is_named(result: Any):
    indexed = table().set_index("site")
    with pytest.raises(
        raysim.RaysimError, match=r"^data.silo: 'site' is the data frame's index; make it a column: fra"
    ):
        raysim.describe(CONFIG, data=indexed)
    with pytest.raises(raysim.RaysimError, match=r"^table: 'site' is the data frame's index; make it a column"):
        result.predict(indexed)


@pytest.mark.parametrize("rows", [{"age": 1.0}, [1.0], np.ones(3), None])
def test_rows_that_are_no_table_are_one_line(result: Any, rows: Any):
    with pytest.raises(
        raysim.RaysimError, match=(r"^table: an? \w+ is neither a data frame nor a file; make a data frame")
    ):
        result.predict(rows)


def test_a_data_frame_in_place_of_a_configuration_is_named():
    for call in (raysim.run, raysim.compare, raysim.describe):
        with pytest.raises(raysim.RaysimError, match="data="):
            call(table())


def test_the_home_folder_stands_for_a_tilde_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (empty_store(tmp_path) / "mlflow.db").rename(tmp_path / "runs.db")
    table().to_csv(tmp_path / "stays.csv", index=False)
    keys = {"data.path": "~/stays.csv", "checkpoint.path": "~/kept", "tracking.uri": "sqlite:///~/runs.db"}
    (tmp_path / "c.yaml").write_text("data: {source: table, silo: site, label: died}\ntraining: {rounds: 1}\n")
    made = raysim.run("~/c.yaml", overrides=keys | {"checkpoint.every": 1}, out="~/out", in_process=True)
    assert made.folder == tmp_path / "out"
    assert made.config.tracking.uri == f"sqlite:///{tmp_path}/runs.db"
    assert (tmp_path / "kept").is_dir()
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as store:
        assert store.execute("select count(*) from runs").fetchone() == (1,)
    assert raysim.load("~/out").folder == raysim.resume("~/out").folder == made.folder
    assert len(made.predict("~/stays.csv")) == ROWS
