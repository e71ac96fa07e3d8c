"""What test files were measured to run, stored in a JSON file from one start to the next.

A measurement holds as long as the modules that the test file judges and every file that it read stay the same.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from tests.mutation.trials import Measured, MeasuredTest, digests


class StoredMeasurements:
    """The measurements in ``path`` (None: nothing is stored) that hold for the tree in ``root``."""

    def __init__(self, path: Path | None, root: Path) -> None:
        self._path, self._root = path, root
        self._lock = threading.Lock()

    def get(self, file: str, modules: Sequence[str]) -> list[MeasuredTest] | None:
        """The tests of ``file`` with the lines of ``modules`` they ran; None where that is to be measured again."""
        entry = self._read().get(file)
        if (
            entry is None
            or entry["modules"] != list(modules)
            or entry["sources"] != digests(entry["sources"], self._root)
        ):
            return None
        return [
            MeasuredTest(name, seconds, outcome, {module: set(of_module) for module, of_module in lines.items()})
            for name, seconds, outcome, lines in entry["tests"]
        ]

    def put(self, file: str, modules: Sequence[str], measured: Measured) -> None:
        """Keep a measurement, unless a test failed."""
        if self._path is None or any(test.outcome == "failed" for test in measured.tests):
            return
        entry = {"modules": list(modules), "sources": measured.sources, "tests": list(map(astuple, measured.tests))}
        with self._lock:
            text = json.dumps(self._read() | {file: entry}, default=sorted)
            written = self._path.with_name(f"{self._path.name}.{os.getpid()}")
            written.write_text(text)
            written.replace(self._path)

    def _read(self) -> dict[str, Any]:
        if self._path is None or not self._path.exists():
            return {}
        stored: dict[str, Any] = json.loads(self._path.read_text())
        return stored
