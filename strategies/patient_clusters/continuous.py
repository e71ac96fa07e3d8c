"""The features by which patients are clustered: columns of values, not flags of missing values.

By default, these are only the continuous columns. Every hospital sends, for each column, whether its rows have more
than two different values there. A column is continuous if this is true at some hospital.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import Context, FederationView, Floats, Ids, Statistic, Unfit, statistics_of

Features = Literal["continuous", "values"]


@dataclass(frozen=True)
class MoreThanTwoValues(Statistic):
    """Whether each of D value columns has more than two different recorded values at a hospital, as 1 or 0, ``[D]``."""

    shape: tuple[int]
    name = "continuous_features"

    def value(self, at: Context) -> Floats:
        observed, values = at.rows.observed, at.rows.X[:, : self.shape[0]]
        least = np.where(observed, values, np.inf).min(axis=0, initial=np.inf)
        most = np.where(observed, values, -np.inf).max(axis=0, initial=-np.inf)
        between: NDArray[np.bool_] = (observed & (values > least) & (values < most)).any(axis=0)
        return between.astype(np.float64)


def clustered_columns(view: FederationView, features: Features) -> Ids:
    """Return the indices of the d feature columns by which patients are clustered, ``[d]``.

    Raises ``Unfit`` if ``features`` is ``continuous`` and no column is continuous.
    """
    if features == "values":
        return np.arange(view.columns)
    columns = np.flatnonzero(statistics_of(view, MoreThanTwoValues((view.columns,)), view.trainable).any(axis=0))
    if not len(columns):
        raise Unfit(
            f"features: {features}, but no feature takes more than two values at any hospital; set features: "
            "values, or choose a strategy that does not cluster patients"
        )
    return columns


def filled(table: Floats, rows: int) -> Floats:
    """Return ``table [k, d]`` with rows of NaN appended, ``[rows, d]``."""
    return np.vstack([table, np.full((rows - len(table), table.shape[1]), np.nan)])


def defined(table: Floats) -> Floats:
    """Return a table from :func:`filled` without the appended rows of NaN."""
    return table[~np.isnan(table[:, 0])]


def chosen(X: NDArray[Any], columns: Ids) -> Floats:
    """Return the given ``columns`` of the features ``X [n, F]`` in float64, ``[n, d]``.

    Each row is contiguous in memory, so that sums over a row never depend on the other rows.
    """
    return np.ascontiguousarray(X[:, columns], dtype=np.float64)
