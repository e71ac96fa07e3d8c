"""Metrics that are written straight into a SQLite store are those that MLflow itself would have written."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from mlflow.entities import Metric
from mlflow.tracking import MlflowClient

from raysim.tracking.client import Tracker
from raysim.tracking.sqlite_metrics import COLUMNS, SqliteMetrics
from tests.conftest import empty_store

POINTS = [
    Metric("a/x", 0.5, 1000, 1),
    Metric("a/x", 0.25, 1000, 3),
    Metric("a/x", 0.75, 2000, 2),
    Metric("b", -1.0, 1000, 0),
    Metric("b", -3.0, 2000, 0),
    Metric("b", -2.0, 2000, 0),
    Metric("c", 1e-300, 7, 5),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> tuple[str, Path]:
    """A store that MLflow has made: the id of an experiment in it, and its file."""
    path = empty_store(tmp_path_factory.mktemp("store")) / "mlflow.db"
    return Tracker(f"sqlite:///{path}", "here").experiment, path


def rows(path: Path, table: str, run_id: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(path) as database:
        names = ", ".join(name for name in COLUMNS[table] if name != "run_uuid")
        return sorted(database.execute(f"SELECT {names} FROM {table} WHERE run_uuid = ?", (run_id,)).fetchall())


@pytest.mark.parametrize("parts", [(POINTS,), (POINTS[:2], POINTS[2:]), (POINTS[3:], POINTS[:3]), (POINTS, POINTS)])
def test_both_ways_leave_the_same_tables(store, parts):
    experiment, path = store
    client = MlflowClient(f"sqlite:///{path}")
    straight, asked = (client.create_run(experiment).info.run_id for _ in range(2))
    for part in parts:
        assert SqliteMetrics(path).write(straight, part)
        client.log_batch(asked, metrics=part)
    for table in COLUMNS:
        assert rows(path, table, straight) == rows(path, table, asked)
        assert rows(path, table, straight)
    assert client.get_run(straight).data.metrics == {"a/x": 0.25, "b": -2.0, "c": 1e-300}
    assert [p.value for p in client.get_metric_history(straight, "a/x")] == [0.5, 0.25, 0.75]


def test_a_tracker_writes_so_and_tells_that_the_store_has_answered(store):
    _, path = store
    answers: list[int] = []
    tracker = Tracker(f"sqlite:///{path}", "here", lambda: answers.append(1))
    run_id = tracker.start("run", {}, {})
    before = len(answers)
    tracker.metrics(run_id, [("auroc", 0.5, 1), ("auroc", float("nan"), 2), ("auroc", 0.75, 3)])
    assert len(answers) == before + 1
    assert MlflowClient(f"sqlite:///{path}").get_run(run_id).data.metrics == {"auroc": 0.75}


def test_names_and_tables_that_are_others_are_left_to_mlflow(store, tmp_path):
    experiment, path = store
    run_id = MlflowClient(f"sqlite:///{path}").create_run(experiment).info.run_id
    assert not SqliteMetrics(path).write(run_id, [Metric("a", 1.0, 1, 1), Metric("b{c}", 1.0, 1, 1)])
    assert rows(path, "metrics", run_id) == []
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE metrics (key, value, timestamp, run_uuid, step, is_nan, workspace)")
        database.execute("CREATE TABLE latest_metrics (key, value, timestamp, step, is_nan, run_uuid)")
    assert not SqliteMetrics(other).write("r", POINTS)
    with sqlite3.connect(other) as database:
        assert database.execute("SELECT count(*) FROM metrics").fetchone() == (0,)


def test_all_or_nothing(store):
    experiment, path = store
    run_id = MlflowClient(f"sqlite:///{path}").create_run(experiment).info.run_id
    with pytest.raises(sqlite3.Error):
        SqliteMetrics(path).write(run_id, [*POINTS, Metric("d", None, 1, 1)])
    assert rows(path, "metrics", run_id) == []
