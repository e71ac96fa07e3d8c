"""What is written straight into a SQLite store is what MLflow itself would have written."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from mlflow.entities import Metric
from mlflow.tracking import MlflowClient

from raysim.engine.job import Round
from raysim.tracking.client import Tracker
from raysim.tracking.sqlite_store import COLUMNS, Point, SqliteStore
from tests.conftest import empty_store

POINTS = [
    Point("a/x", 0.5, 1000, 1),
    Point("a/x", 0.25, 1000, 3),
    Point("a/x", 0.75, 2000, 2),
    Point("b", -1.0, 1000, 0),
    Point("b", -3.0, 2000, 0),
    Point("b", -2.0, 2000, 0),
    Point("c", 1e-300, 7, 5),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    """The file of a store that MLflow has made, with the experiment ``here``."""
    path = empty_store(tmp_path_factory.mktemp("store")) / "mlflow.db"
    Tracker(f"sqlite:///{path}", "here")
    return path


def straight(path: Path) -> tuple[SqliteStore, str]:
    """Return the tables of a store, and a new run in them."""
    tables = SqliteStore.of(path, "here")
    assert tables is not None
    return tables, tables.start("run", {}, {}, None)[0]


def rows(path: Path, table: str, run_id: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(path) as database:
        names = ", ".join(name for name in COLUMNS[table] if name != "run_uuid")
        return sorted(database.execute(f"SELECT {names} FROM {table} WHERE run_uuid = ?", (run_id,)).fetchall())


@pytest.mark.parametrize("parts", [(POINTS,), (POINTS[:2], POINTS[2:]), (POINTS[3:], POINTS[:3]), (POINTS, POINTS)])
def test_both_ways_leave_the_same_metrics(store, parts):
    client = MlflowClient(f"sqlite:///{store}")
    tables, run = straight(store)
    asked = client.create_run(tables.experiment).info.run_id
    for part in parts:
        assert tables.log(run, part, {})
        client.log_batch(asked, metrics=[Metric(*point) for point in part])
    for table in ("metrics", "latest_metrics"):
        assert rows(store, table, run) == rows(store, table, asked)
        assert rows(store, table, run)
    assert client.get_run(run).data.metrics == {"a/x": 0.25, "b": -2.0, "c": 1e-300}
    assert [p.value for p in client.get_metric_history(run, "a/x")] == [0.5, 0.25, 0.75]


def recorded(tracker: Tracker, file: Path) -> list[str]:
    """Record a run and one nested in it, and return their ids."""
    tags = {"raysim.run": "1", "strategy": "fedavg", "source": "synthetic", "data": "0123456789" * 5}
    outer = tracker.start("outer", {"name": "x", "training": {"rounds": 3, "why": "y" * 7000}}, tags)
    inner = tracker.start("inner", {"H\u00f4pital (1)": 1}, tags, outer)
    tracker.rounds(inner, [Round(t, 0.1, 5, 10, 20, {"global": {"auroc": 0.5 + t}}) for t in (1, 2)])
    tracker.complete(
        inner, {"auroc": 0.75}, {"a/b.txt": file}, "broken", "note " * 2000, title="new", tags={"seed": "1"}
    )
    tracker.end(inner, "FAILED")
    tracker.finish(outer, {"gini": 0.25}, {}, "FINISHED")
    return [outer, inner]


def everything(path: Path, runs: list[str]) -> dict[str, list[list[Any]]]:
    """Return all rows about runs and experiments; ids and times are replaced by what they are."""
    with sqlite3.connect(path) as database:
        tables = {table: database.execute(f"SELECT * FROM {table}").fetchall() for table in COLUMNS}
    known = {run: f"run {k}" for k, run in enumerate(runs)} | {str(path.parent): "here"}
    known |= {row[0]: "data" for row in tables["datasets"]}

    def plain(value: Any) -> Any:
        if isinstance(value, int) and value > 10**12:
            return "time"
        if not isinstance(value, str):
            return value
        for name, meaning in known.items():
            value = value.replace(name, meaning)
        return re.sub(r"^[0-9a-f]{32}$", "id", value)

    return {table: sorted(([plain(v) for v in row] for row in of), key=repr) for table, of in tables.items()}


def test_both_ways_leave_the_same_store(tmp_path, monkeypatch):
    """All tables, with a run that is nested, failed, renamed and has a long note and a file."""
    (tmp_path / "file.txt").write_text("text")
    found = []
    for name in ("straight", "asked"):
        (tmp_path / name).mkdir()
        path = empty_store(tmp_path / name) / "mlflow.db"
        tracker = Tracker(f"sqlite:///{path}", "here")
        assert isinstance(tracker._rows, SqliteStore)
        if name == "asked":
            monkeypatch.setattr(tracker, "_rows", None)
        found.append(everything(path, recorded(tracker, tmp_path / "file.txt")))
        assert len(list((tmp_path / name / "mlartifacts").rglob("a/b.txt"))) == 1
    for table in COLUMNS:
        assert found[0][table] == found[1][table], table
        assert found[0][table]


def test_a_tracker_writes_so_and_tells_that_the_store_has_answered(store):
    answers: list[int] = []
    tracker = Tracker(f"sqlite:///{store}", "here", lambda: answers.append(1))
    run_id = tracker.start("run", {}, {})
    tracker.metrics(run_id, [("auroc", 0.5, 1), ("auroc", float("nan"), 2), ("auroc", 0.75, 3)])
    assert len(answers) == 3, "it was opened, and took two calls"
    assert "_client" not in vars(tracker)
    assert MlflowClient(f"sqlite:///{store}").get_run(run_id).data.metrics == {"auroc": 0.75}


def test_names_and_tables_that_are_others_are_left_to_mlflow(store, tmp_path):
    tables, run = straight(store)
    assert not tables.log(run, [Point("a", 1.0, 1, 1), Point("b{c}", 1.0, 1, 1)], {})
    assert not tables.log(run, [Point("a", 1.0, 1, 1)], {"b{c}": "1"})
    assert rows(store, "metrics", run) == []
    assert SqliteStore.of(store, "elsewhere") is None
    assert SqliteStore.of(tmp_path / "none.db", "here") is None
    other = tmp_path / "other.db"
    with sqlite3.connect(store) as database, sqlite3.connect(other) as copy:
        database.backup(copy)
        copy.execute("ALTER TABLE params ADD COLUMN workspace")
    assert SqliteStore.of(other, "here") is None
    tracker = Tracker(f"sqlite:///{other}", "here")
    tracker.finish(tracker.start("run", {"a": 1}, {}), {"auroc": 0.5}, {}, "FINISHED")
    (last,) = MlflowClient(f"sqlite:///{other}").search_runs([tracker.experiment], max_results=1)
    assert (last.data.params, last.data.metrics) == ({"a": "1"}, {"auroc": 0.5})


def test_all_or_nothing(store):
    tables, run = straight(store)
    with pytest.raises(sqlite3.Error):
        tables.log(run, [*POINTS, Point("d", None, 1, 1)], {"seed": "1"})
    assert rows(store, "metrics", run) == []
    assert [tag[0] for tag in rows(store, "tags", run)] == ["mlflow.runName"]
