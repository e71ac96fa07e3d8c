"""Results of queries on the eICU tables as arrays, one row per stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import duckdb


def fetch(connection: duckdb.DuckDBPyConnection, query: str) -> dict[str, NDArray[Any]]:
    """Return the columns of a query's result by name, as arrays in which missing values are masked."""
    return {str(name): np.ma.asarray(values) for name, values in connection.execute(query).fetchnumpy().items()}


def counts(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[int, ...]:
    """Return the only row of a query's result as whole numbers."""
    row = connection.execute(query).fetchone()
    assert row is not None  # An aggregate without GROUP BY always gives one row.
    return tuple(int(value) for value in row)


def text(values: NDArray[Any]) -> NDArray[Any]:
    """Return the values as texts of fixed width, ``[N]``, with ``unknown`` for missing values."""
    return np.asarray(np.ma.filled(values, "unknown"), dtype=str)


def float32(values: NDArray[Any], absent: float = np.nan) -> NDArray[np.float32]:
    """Return the values as float32, ``[N]``, with ``absent`` for missing values."""
    return np.asarray(np.ma.filled(values.astype(np.float32), absent), dtype=np.float32)


def attributes(silo: NDArray[Any], stays: dict[str, NDArray[Any]]) -> dict[str, dict[str, str]]:
    """Return attributes, such as the region, of each hospital in ``silo [N]``. A value is ``mixed`` if the hospital
    combines several hospitals of eICU with different values.
    """
    names, of_silo = np.unique(silo, return_inverse=True)
    by_hospital: dict[str, dict[str, str]] = {str(name): {} for name in names}
    for attribute in ("region", "beds", "teaching"):
        values = text(stays[attribute])
        for k, name in enumerate(by_hospital):
            different = np.unique(values[of_silo == k])
            by_hospital[name][attribute] = str(different[0]) if len(different) == 1 else "mixed"
    return by_hospital
