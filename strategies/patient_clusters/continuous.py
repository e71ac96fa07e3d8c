"""The features that patients are clustered by: value columns, and usually only those that are not binary.

All hospitals must agree on which columns are binary. Therefore every hospital sends one bit for each column: whether it
has more than two different values in it. A column is continuous if some hospital does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import FederationView, Floats, HospitalRows, Ids, Unfit, one_of

Features = Literal["continuous", "values"]


@dataclass(frozen=True)
class MoreThanTwoValues:
    """For each value column, whether it has more than two different recorded values, ``[D]`` ones and zeros."""

    kind: ClassVar[str] = "continuous_features"

    def answer(self, rows: HospitalRows) -> Floats:
        values = rows.X[:, : rows.observed.shape[1]]
        least = np.where(rows.observed, values, np.inf).min(axis=0, initial=np.inf)
        most = np.where(rows.observed, values, -np.inf).max(axis=0, initial=-np.inf)
        between: NDArray[np.bool_] = (rows.observed & (values > least) & (values < most)).any(axis=0)
        return between.astype(np.float64)


def check_features(features: str) -> None:
    """Raise ``ValueError`` for an unknown choice of features."""
    one_of("features", features, ("continuous", "values"))


def ask_columns(view: FederationView, features: Features) -> Ids:
    """Return the columns of ``X`` that patients are clustered by, ``[d]``: ``continuous`` ones, or all columns of
    ``values``.

    Raises ``Unfit`` if no column is continuous. For ``values`` one hospital is asked for the number of columns.
    """
    asked = view.trainable if features == "continuous" else view.trainable[:1]
    several = np.stack(view.ask(MoreThanTwoValues(), ids=asked))
    columns = np.flatnonzero(several.any(axis=0)) if features == "continuous" else np.arange(several.shape[1])
    if not len(columns):
        raise Unfit(
            f"features: {features}, but no feature takes more than two values at any hospital; use values, or a "
            "strategy that does not cluster patients"
        )
    return columns


def chosen(X: NDArray[Any], columns: Ids) -> Floats:
    """Return only these columns of ``X [n, F]``, ``[n, d]`` in float64.

    Rows are contiguous in memory for any n: sums over a row then never depend on the other rows.
    """
    return np.ascontiguousarray(X[:, columns], dtype=np.float64)
