"""The small tables of the regressions as federations, whose hospitals are trained on as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from raysim.data.federation import Federation
from raysim.engine.messages.plan import ModelSpec
from tests.conftest import store
from tests.strategies.regressions.tables import Table

LINEAR_MODEL = ModelSpec("linear_regression", None, {}, "default")
POISSON_MODEL = ModelSpec("poisson_regression", None, {}, "default")


def federation_of(folder: Path, table: Table, y: Any, classes: int = 2) -> Federation:
    """The table's rows, each hospital's for training and then again for the test."""
    folder.mkdir(parents=True)
    X, hospitals = table.X[:, 1:], int(table.hospital.max()) + 1
    parts = [np.flatnonzero(table.hospital == h) for h in range(hospitals)]
    order = np.concatenate([np.concatenate([rows, rows]) for rows in parts])
    bounds, end = [], 0
    for rows in parts:
        n = len(rows)
        bounds.append([end, end + n, end + n, end + 2 * n])
        end += 2 * n
    return store(folder, X[order], np.asarray(y)[order], bounds, classes)
