"""The columns of a source's rows by kind, before preprocessing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

CHUNK = 65_536
"""The number of rows that are processed at a time, to limit memory."""


@dataclass(frozen=True, eq=False, repr=False)
class RawColumns:
    """The columns of ``N`` rows by kind, as read from a source.

    - ``order``: the names of all columns.
    - ``numeric``: names of columns of numbers; their ``values`` are ``[N, len(numeric)]`` (NaN: missing).
    - ``categorical``: names of columns of texts; each has ``codes [N]`` into its ``categories`` (-1: missing).
    """

    order: tuple[str, ...]
    numeric: tuple[str, ...]
    values: NDArray[Any]
    categorical: tuple[str, ...] = ()
    codes: tuple[NDArray[np.int64], ...] = ()
    categories: tuple[tuple[str, ...], ...] = field(default=())

    @property
    def rows(self) -> int:
        """The number of rows, ``N``."""
        return len(self.codes[0]) if self.codes else len(self.values)

    @staticmethod
    def of(features: pd.DataFrame) -> RawColumns:
        """Return the columns of a data frame by kind. Raises ``DataError`` if there is no column, and for a column of
        neither numbers nor pandas categories.
        """
        import pandas as pd

        names = tuple(str(name) for name in features.columns)
        is_text = [isinstance(dtype, pd.CategoricalDtype) for dtype in features.dtypes]
        numeric = tuple(name for name, text in zip(names, is_text, strict=True) if not text)
        categorical = tuple(name for name, text in zip(names, is_text, strict=True) if text)
        if not names:
            raise DataError("data: the source gives no feature; name at least one column")
        # With one type of floats, to_numpy does not copy the frame.
        numbers = features[list(numeric)] if categorical else features
        try:
            values: NDArray[Any] = numbers.to_numpy() if _one_block(numbers) else numbers.to_numpy(np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"data: a feature is not numeric ({error}); make it a category or drop it") from None
        return RawColumns(
            order=names,
            numeric=numeric,
            values=values,
            categorical=categorical,
            codes=tuple(features[name].cat.codes.to_numpy().astype(np.int64) for name in categorical),
            categories=tuple(tuple(str(c) for c in features[name].cat.categories) for name in categorical),
        )


def refuse_missing(table: RawColumns, rows: NDArray[np.int64]) -> None:
    """Raise ``DataError`` if one of the rows ``rows [n]`` lacks a value; the error names a column that lacks one."""
    counts = np.zeros(len(table.numeric), np.int64)
    for at in slices(len(rows)):
        counts += np.isnan(table.values[rows[at]]).sum(axis=0)
    missing = [*counts.tolist(), *(int((codes[rows] < 0).sum()) for codes in table.codes)]
    for name, n in zip([*table.numeric, *table.categorical], missing, strict=True):
        if n:
            raise DataError(
                f"data.preprocessing: none, but feature '{name}' has {n:,} missing values; "
                "use standard, fill them, or drop the column"
            )


def slices(n: int) -> Iterator[slice]:
    """Yield consecutive slices of at most ``CHUNK`` rows that cover ``n`` rows."""
    return (slice(at, at + CHUNK) for at in range(0, n, CHUNK))


def _one_block(frame: pd.DataFrame) -> bool:
    dtypes = set(frame.dtypes)
    return len(dtypes) == 1 and next(iter(dtypes)) in (np.dtype(np.float32), np.dtype(np.float64))
