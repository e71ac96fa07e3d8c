"""Writes runs directly into an MLflow store in SQLite, in one transaction for each step of a run.

MLflow takes two seconds of processor time to import and to open a store, and 30 ms to record a run. The tables are
MLflow's own, and a test compares all their rows with those that MLflow writes. If a table has another form, nothing is
written here, and MLflow records the runs. MLflow also makes the store and its experiment, and finds runs again.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

COLUMNS = {
    "experiments": (
        *("experiment_id", "name", "artifact_location", "lifecycle_stage", "creation_time", "last_update_time"),
        "workspace",
    ),
    "experiment_tags": ("key", "value", "experiment_id"),
    "runs": (
        *("run_uuid", "name", "source_type", "source_name", "entry_point_name", "user_id", "status", "start_time"),
        *("end_time", "source_version", "lifecycle_stage", "artifact_uri", "experiment_id", "deleted_time"),
    ),
    "params": ("key", "value", "run_uuid"),
    "tags": ("key", "value", "run_uuid"),
    "datasets": (
        *("dataset_uuid", "experiment_id", "name", "digest", "dataset_source_type", "dataset_source"),
        *("dataset_schema", "dataset_profile"),
    ),
    "inputs": ("input_uuid", "source_type", "source_id", "destination_type", "destination_id", "step"),
    "metrics": ("key", "value", "timestamp", "run_uuid", "step", "is_nan"),
    "latest_metrics": ("key", "value", "timestamp", "step", "is_nan", "run_uuid"),
}
"""The tables and their columns, in order."""

LATER = """
INSERT INTO latest_metrics VALUES (?, ?, ?, ?, 0, ?)
ON CONFLICT (key, run_uuid) DO UPDATE SET value = excluded.value, timestamp = excluded.timestamp, step = excluded.step
WHERE (excluded.step, excluded.timestamp, excluded.value) > (step, timestamp, value)
"""
"""Statement that replaces the latest point by a later one: ordered by step, then time, then value, as in MLflow."""

KEY = re.compile(r"[/\w.\- :]{1,250}")
"""Names that MLflow accepts for metrics and tags; other names are left to MLflow, which reports its own error."""

LONGEST_TAG = 8000
"""Largest number of characters of a tag's value; MLflow cuts longer ones."""

NAME_TAG = "mlflow.runName"
"""The tag that repeats a run's name."""

FOLDER = "file:///"
"""How the place of an experiment's files begins if it is a folder of this machine."""

PATIENCE_SECONDS = 30.0
"""Seconds to wait for another writer to release the file."""


class Point(NamedTuple):
    """A finite value of a metric at a step; ``timestamp`` is in milliseconds."""

    key: str
    value: float
    timestamp: int
    step: int


class Data(NamedTuple):
    """The data that a run was trained on: their name, their digest, and MLflow's text on their source."""

    name: str
    digest: str
    source: str


@dataclass(frozen=True)
class SqliteStore:
    """The tables in the database at ``path``, for runs of one experiment with an id, a ``place`` for files, and tags.

    Methods raise ``sqlite3.Error`` if the database cannot be used.
    """

    path: Path
    experiment: str
    place: str
    tags: Mapping[str, str]

    @classmethod
    def of(cls, path: Path, name: str) -> SqliteStore | None:
        """Return the store for an active experiment with files on this machine; None if there is none, or the tables
        have another form."""
        if not path.exists():
            return None
        with _opened(path) as database:
            if any(_columns(database, table) != names for table, names in COLUMNS.items()):
                return None
            found = database.execute(
                "SELECT experiment_id, artifact_location FROM experiments"
                " WHERE name = ? AND lifecycle_stage = 'active' AND workspace = 'default'",
                (name,),
            ).fetchone()
            if found is None or not str(found[1]).startswith(FOLDER):
                return None
            tags = database.execute("SELECT key, value FROM experiment_tags WHERE experiment_id = ?", found[:1])
            return cls(path, str(found[0]), found[1], dict(tags))

    def start(
        self, name: str, params: Mapping[str, str], tags: Mapping[str, str], data: Data | None
    ) -> tuple[str, str]:
        """Open a run; return its id and the address of the folder for its files."""
        run_id, number = uuid.uuid4().hex, int(self.experiment)
        place = f"{self.place}/{run_id}/artifacts"
        row = (run_id, name, "UNKNOWN", "", "", "unknown", "RUNNING", _now(), None, "", "active", place, number, None)
        with _opened(self.path) as database:
            _insert(database, "runs", [row])
            _insert(database, "tags", _tags(run_id, {**tags, NAME_TAG: name}))
            _insert(database, "params", [(key, value, run_id) for key, value in params.items()])
            if data is not None:
                new = (uuid.uuid4().hex, number, data.name, data.digest, "raysim", data.source, None, None)
                _insert(database, "datasets", [new], "OR IGNORE")
                (known,) = database.execute(
                    "SELECT dataset_uuid FROM datasets WHERE experiment_id = ? AND name = ? AND digest = ?", new[1:4]
                ).fetchone()
                _insert(database, "inputs", [(uuid.uuid4().hex, "DATASET", known, "RUN", run_id, 0)])
        return run_id, place

    def log(self, run_id: str, points: Sequence[Point], tags: Mapping[str, str]) -> bool:
        """Write finite points and tags of a run, all or none. Returns whether MLflow accepts their names."""
        if not all(KEY.fullmatch(key) for key in (*tags, *(point.key for point in points))):
            return False
        latest = {point.key: point for point in sorted(points, key=_moment)}
        with _opened(self.path) as database:
            _insert(database, "metrics", [(*point[:3], run_id, point.step, 0) for point in points], "OR IGNORE")
            database.executemany(LATER, [(*point, run_id) for point in latest.values()])
            _insert(database, "tags", _tags(run_id, tags), "OR REPLACE")
        return True

    def rename(self, run_id: str, name: str) -> None:
        """Rename a run."""
        with _opened(self.path) as database:
            database.execute("UPDATE runs SET name = ? WHERE run_uuid = ?", (name, run_id))
            _insert(database, "tags", [(NAME_TAG, name, run_id)], "OR REPLACE")

    def end(self, run_id: str, status: str) -> None:
        """Set a run's final status."""
        with _opened(self.path) as database:
            database.execute("UPDATE runs SET status = ?, end_time = ? WHERE run_uuid = ?", (status, _now(), run_id))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the database for one transaction."""
    with contextlib.closing(sqlite3.connect(path, timeout=PATIENCE_SECONDS)) as database, database:
        yield database


def _insert(database: sqlite3.Connection, table: str, rows: Sequence[tuple[object, ...]], otherwise: str = "") -> None:
    """Insert whole rows; ``otherwise`` is SQLite's clause for rows that exist."""
    places = ", ".join("?" * len(COLUMNS[table]))
    database.executemany(f"INSERT {otherwise} INTO {table} VALUES ({places})", rows)


def _tags(run_id: str, tags: Mapping[str, str]) -> list[tuple[object, ...]]:
    return [(key, value[:LONGEST_TAG], run_id) for key, value in tags.items()]


def _moment(point: Point) -> tuple[int, int, float]:
    """Return the sort key of points of one metric."""
    return point.step, point.timestamp, point.value


def _now() -> int:
    return int(time.time() * 1000)


def _columns(database: sqlite3.Connection, table: str) -> tuple[str, ...]:
    return tuple(name for _, name, *_ in database.execute(f"PRAGMA table_info({table})"))
