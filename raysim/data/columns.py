"""Describe a source's feature columns before preprocessing, and report the suspect columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["number", "binary", "category"]
Remark = Literal["", "empty", "constant", "unnamed", "row number", "identifier"]

UNNAMED = re.compile(r"|unnamed: \d+|__index_level_\d+__|\.\.\.\d+|x\.\d+|v\d+", re.IGNORECASE)
"""The pattern of names that pandas, Arrow and R assign to a column without a name."""

_FEW = 20  # fewest rows at which "all different" is evidence
_DENSE = 0.5  # least share of their range that row numbers fill


@dataclass(frozen=True)
class Column:
    """The properties of a feature column of a data source, over all included rows.

    - ``name``: the column's name in the source.
    - ``kind``: ``number``, ``binary`` (numbers with two different values) or ``category``.
    - ``missing``: the share of rows without a value.
    - ``low``, ``high``: the lowest and highest number; None for a column of categories or without any value.
    - ``distinct``: how many different values there are.
    - ``remark``: why the column is suspect: it is ``empty``, ``constant``, ``unnamed`` in the file, a ``row number``
      (different whole numbers without large gaps) or an ``identifier`` (a different category or whole number in every
      row). An empty text if the column is not suspect.
    """

    name: str
    kind: Kind
    missing: float
    low: float | None
    high: float | None
    distinct: int
    remark: Remark = ""

    @property
    def range(self) -> str:
        """The lowest and highest number of the column, or its number of categories, as text."""
        if self.kind == "category":
            return f"{self.distinct:,} categories"
        if self.low is None or self.high is None:
            return "no value"
        return f"{self.low:.4g} to {self.high:.4g}"


def columns_of(features: pd.DataFrame) -> tuple[Column, ...]:
    """Return the properties of each column of ``features``; a column contains numbers (NaN: missing) or pandas
    categories.
    """
    return tuple(_column(str(name), features[name]) for name in features.columns)


def warnings_of(columns: Sequence[Column]) -> tuple[str, ...]:
    """Return a warning for each column that has no name, may be a row number, or may be an identifier."""
    reasons = {
        "unnamed": "has no name in the file",
        "row number": "looks like a row number",
        "identifier": "has a different value in every row",
    }
    empty = ": ['']"
    return tuple(
        f"feature '{column.name}' {reasons[column.remark]} ({column.range}); drop it "
        f"(data.drop{'' if column.name else empty}) unless it is meant"
        for column in columns
        if column.remark in reasons
    )


def _column(name: str, series: pd.Series[Any]) -> Column:
    import pandas as pd

    rows = len(series)
    if isinstance(series.dtype, pd.CategoricalDtype):
        recorded, distinct = int(series.notna().sum()), int(series.nunique())
        missing = 1.0 - recorded / max(rows, 1)
        every_row = rows >= _FEW and distinct == rows
        return Column(name, "category", missing, None, None, distinct, _remark(name, distinct, False, every_row))
    ascending = _ascending(series)
    recorded = len(ascending)
    missing = 1.0 - recorded / max(rows, 1)
    distinct = int(np.count_nonzero(ascending[1:] != ascending[:-1])) + min(recorded, 1)
    low, high = (float(ascending[0]) + 0.0, float(ascending[-1]) + 0.0) if recorded else (None, None)  # no -0
    whole = rows >= _FEW and distinct == rows and bool((ascending == np.round(ascending)).all())
    numbered = whole and high is not None and low is not None and rows / (high - low + 1) >= _DENSE
    kind: Kind = "binary" if distinct == 2 else "number"
    return Column(name, kind, missing, low, high, distinct, _remark(name, distinct, numbered, whole))


def _ascending(series: pd.Series[Any]) -> NDArray[Any]:
    values = series.to_numpy()
    ascending = np.sort(values if values.dtype.kind in "fiu" else series.to_numpy(np.float64))
    return ascending[: len(ascending) - int(np.isnan(ascending).sum())]


def _remark(name: str, distinct: int, numbered: bool, every_row: bool) -> Remark:
    if not distinct:
        return "empty"
    if numbered:
        return "row number"
    if every_row:
        return "identifier"
    if distinct == 1:
        return "constant"
    return "unnamed" if UNNAMED.fullmatch(name.strip()) else ""
