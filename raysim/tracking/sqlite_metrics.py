"""Writes metrics of runs directly into an MLflow store in SQLite, because MLflow does it slowly.

MLflow's two tables of metrics have had the same columns since version 1.15. If a store's tables have other columns,
MLflow itself writes the metrics.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COLUMNS = {
    "metrics": ("key", "value", "timestamp", "run_uuid", "step", "is_nan"),
    "latest_metrics": ("key", "value", "timestamp", "step", "is_nan", "run_uuid"),
}
"""The tables of the MLflow database that raysim writes to, and the columns that they must have, in this order."""

LATER = """
INSERT INTO latest_metrics VALUES (?, ?, ?, ?, 0, ?)
ON CONFLICT (key, run_uuid) DO UPDATE SET value = excluded.value, timestamp = excluded.timestamp, step = excluded.step
WHERE (excluded.step, excluded.timestamp, excluded.value) > (step, timestamp, value)
"""
"""SQL statement that replaces a metric's latest point if the new point is later by step, then time, then value."""

KEY = re.compile(r"[/\w.\- :]{1,250}")
"""Pattern of the metric names that MLflow accepts."""

PATIENCE_SECONDS = 30.0


class SqliteMetrics:
    """The two tables of metrics in the MLflow database at ``path``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._usable: bool | None = None

    def write(self, run_id: str, points: Sequence[Any]) -> bool:
        """Write ``points``, a run's finite metric values as MLflow's objects, all or none. Return whether all were
        written.

        Nothing is written if MLflow would reject a name, or if the tables have other columns. Raises ``sqlite3.Error``
        if the database cannot be written.
        """
        if not all(KEY.fullmatch(point.key) for point in points):
            return False
        database = sqlite3.connect(self._path, timeout=PATIENCE_SECONDS)
        try:
            if self._usable is None:
                self._usable = all(_columns(database, table) == names for table, names in COLUMNS.items())
            if not self._usable:
                return False
            latest = {point.key: point for point in sorted(points, key=_moment)}
            with database:  # one transaction
                database.executemany(
                    "INSERT OR IGNORE INTO metrics VALUES (?, ?, ?, ?, ?, 0)",
                    [(point.key, point.value, point.timestamp, run_id, point.step) for point in points],
                )
                database.executemany(LATER, [(p.key, p.value, p.timestamp, p.step, run_id) for p in latest.values()])
            return True
        finally:
            database.close()


def _moment(point: Any) -> tuple[int, int, float]:
    return point.step, point.timestamp, point.value


def _columns(database: sqlite3.Connection, table: str) -> tuple[str, ...]:
    return tuple(name for _, name, *_ in database.execute(f"PRAGMA table_info({table})"))
