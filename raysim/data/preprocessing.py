"""Turns recorded values into numbers a model can take, fitted on training rows alone.

``standard`` needs nothing from a hospital but sums that add up over hospitals: per numeric feature the number of
observed values, their sum, and (told the mean) their sum of squared deviations; per categorical feature how often each
category occurs. ``median`` imputes the pooled median instead of the mean: no sum of hospitals gives it, so it is a
comparison with centralised pipelines, not a federated method. ``none`` leaves values as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

METHODS = ("standard", "median", "none")
_CHUNK = 65_536  # rows in float64 at once
# Below this share of the mean, a deviation is the rounding of a column that does not vary.
_CONSTANT = 1e-12


@dataclass(frozen=True)
class Sums:
    """What rows of one or more hospitals add up to, for ``D`` numeric features; ``a + b`` is that of both together.

    ``count [D]``: observed values; ``total [D]``: sum of (value - centre); ``squares [D]``: sum of (value - centre)^2.
    """

    count: NDArray[np.int64]
    total: Floats
    squares: Floats

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.count + other.count, self.total + other.total, self.squares + other.squares)


def sums(values: NDArray[Any], centre: Floats | float = 0.0) -> Sums:
    """The sums of ``values [n, D]`` (NaN: not observed) around ``centre [D]``."""
    shifted = values.astype(np.float64) - centre
    observed = ~np.isnan(shifted)
    shifted[~observed] = 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # infinite values make infinite sums, which are refused
        return Sums(observed.sum(axis=0), shifted.sum(axis=0), np.einsum("nd,nd->d", shifted, shifted))


@dataclass(frozen=True)
class Scaler:
    """``(value - mean) / std`` with ``fill`` for missing values, all ``[D]``; ``std`` is inf for a constant column."""

    mean: Floats
    std: Floats
    fill: Floats

    @staticmethod
    def of(first: Sums, second: Sums) -> Scaler:
        """From sums around 0 and, second pass, around the mean they give: safe for means far above deviations."""
        mean = _mean(first)
        std = np.sqrt(second.squares / np.maximum(second.count, 1))
        constant = std <= _CONSTANT * np.abs(mean)
        return Scaler(mean, np.where(constant, np.inf, std), mean)

    def __call__(self, values: NDArray[Any]) -> Floats:
        """Scaled ``values [n, D]``, without missing ones."""
        filled = np.where(np.isnan(values), self.fill, values)
        scaled: Floats = (filled - self.mean) / self.std
        return scaled


def _mean(around_zero: Sums) -> Floats:
    mean: Floats = around_zero.total / np.maximum(around_zero.count, 1)
    return mean


@dataclass(frozen=True, eq=False)
class Prepared:
    """``X [N, F]`` float32 with ``D`` value columns, then flags; ``observed [N, D]``; ``names [F]``; scalars sent."""

    X: NDArray[np.float32]
    observed: NDArray[np.bool_]
    names: tuple[str, ...]
    scalars: int
    note: str


def prepare(
    features: pd.DataFrame, order: NDArray[np.int64], train: NDArray[np.bool_], method: str, hospitals: int
) -> Prepared:
    """Fit on the rows where ``train [N]`` and transform all, in the order ``order [N]`` of rows of ``features``.

    ``train`` is in the new order. Numeric columns are scaled; a categorical column becomes one 0/1 column for each
    category seen in training, all 0 for others. Each feature with a missing training value gets a flag column
    ``<feature>_missing``. ``hospitals`` is the number that have training rows.
    Raises ``DataError`` for values that are not finite float32 numbers and, with ``none``, for missing ones.
    """
    table = _Columns(features)
    training = order[train]
    seen = [np.flatnonzero(np.bincount(codes[training] + 1, minlength=1)[1:]) for codes in table.codes]

    numeric = len(table.numeric)
    around_zero = _total(table.rows(training), numeric)
    _refuse_infinite(around_zero, table.numeric)
    around_mean = _total(table.rows(training), numeric, _mean(around_zero))
    scaler = Scaler.of(around_zero, around_mean)
    scalars = 3 * numeric + sum(len(kept) for kept in seen)
    if method == "median":
        scaler = Scaler(scaler.mean, scaler.std, table.medians(training))
        scalars += math.ceil(around_zero.count.sum() / max(hospitals, 1))
    elif method == "none":
        _refuse_missing(table, order)
        scaler = Scaler(np.zeros(numeric), np.ones(numeric), np.zeros(numeric))
        scalars -= 3 * numeric

    layout = _Layout(table, seen)
    recorded = [*around_zero.count.tolist(), *(int((codes[training] >= 0).sum()) for codes in table.codes)]
    complete = dict(zip([*table.numeric, *table.categorical], (n == len(training) for n in recorded), strict=True))
    flagged = [name for name in layout.features if not complete[name]]

    N, D = len(order), len(layout.columns)
    X = np.zeros((N, D + len(flagged)), np.float32)
    observed = np.empty((N, D), np.bool_)
    for at in _slices(N):
        rows = order[at]
        layout.fill(X[at], observed[at], scaler, rows)
        for k, name in enumerate(flagged):
            X[at, D + k] = table.missing(name, rows)
        if not (finite := np.isfinite(X[at]).all(axis=0)).all():
            raise DataError(
                f"data: feature '{layout.columns[int(np.argmin(finite))]}' holds an infinite value or one beyond "
                "float32; correct it or leave it empty"
            )
    names = (*layout.columns, *(f"{name}_missing" for name in flagged))
    note = f"preprocessing: {method}, {len(layout.features)} features as {D} value columns and {len(flagged)} flags"
    return Prepared(X, observed, names, scalars, note)


class _Columns:
    """A frame by kind: ``numeric`` names with ``values [N, *]``, ``categorical`` names with ``codes [N]`` each."""

    def __init__(self, features: pd.DataFrame) -> None:
        import pandas as pd

        self.order = [str(name) for name in features.columns]
        text = [isinstance(dtype, pd.CategoricalDtype) for dtype in features.dtypes]
        self.numeric = [name for name, is_text in zip(self.order, text, strict=True) if not is_text]
        self.categorical = [name for name, is_text in zip(self.order, text, strict=True) if is_text]
        if not self.order:
            raise DataError("data: the source gives no feature; name at least one column")
        # A frame of one float32 block is not copied.
        values = features[self.numeric] if self.categorical else features
        try:
            self.values: NDArray[Any] = values.to_numpy() if _one_block(values) else values.to_numpy(np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"data: a feature is not numeric ({error}); make it a category or drop it") from None
        self.codes = [features[name].cat.codes.to_numpy().astype(np.int64) for name in self.categorical]
        self.categories = [[str(c) for c in features[name].cat.categories] for name in self.categorical]

    def rows(self, which: NDArray[np.int64]) -> Iterator[NDArray[Any]]:
        for at in _slices(len(which)):
            yield self.values[which[at]]

    def missing(self, name: str, which: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether feature ``name`` is missing in rows ``which [n]``."""
        if name in self.categorical:
            return self.codes[self.categorical.index(name)][which] < 0
        missing: NDArray[np.bool_] = np.isnan(self.values[which, self.numeric.index(name)])
        return missing

    def medians(self, which: NDArray[np.int64]) -> Floats:
        """Median of the observed values of each numeric column (0 where there are none), ``[D]``."""
        found = np.zeros(len(self.numeric))
        for j in range(len(self.numeric)):
            column = self.values[which, j].astype(np.float64)
            column = column[~np.isnan(column)]
            if len(column):
                found[j] = np.median(column)
        return found


class _Layout:
    """Which value column holds what: ``columns [D]`` names, and the ``first`` of each feature."""

    def __init__(self, table: _Columns, seen: Sequence[NDArray[np.int64]]) -> None:
        self._table, self._seen = table, seen
        self.features = table.order
        self.columns: list[str] = []
        self.first: dict[str, int] = {}
        for name in table.order:
            if name in table.categorical:
                k = table.categorical.index(name)
                if len(seen[k]):
                    self.first[name] = len(self.columns)
                self.columns += [f"{name}={table.categories[k][c]}" for c in seen[k]]
            else:
                self.first[name] = len(self.columns)
                self.columns.append(name)
        self._numeric = np.array([self.first[name] for name in table.numeric], np.int64)

    def fill(
        self, X: NDArray[np.float32], observed: NDArray[np.bool_], scaler: Scaler, rows: NDArray[np.int64]
    ) -> None:
        """Write the value columns of ``rows [n]`` into ``X [n, F]`` (zeros so far) and ``observed [n, D]``."""
        values = self._table.values[rows]
        with np.errstate(over="ignore", invalid="ignore"):  # refused by the caller, with its column
            X[:, self._numeric] = scaler(values)
        observed[:, self._numeric] = ~np.isnan(values)
        for k, name in enumerate(self._table.categorical):
            if name not in self.first:
                continue
            codes = self._table.codes[k][rows]
            at = slice(self.first[name], self.first[name] + len(self._seen[k]))
            X[:, at] = codes[:, None] == self._seen[k]
            observed[:, at] = (codes >= 0)[:, None]


def _total(chunks: Iterator[NDArray[Any]], width: int, centre: Floats | float = 0.0) -> Sums:
    """What chunks of rows add up to: the same, up to rounding, as adding hospital by hospital."""
    total = Sums(np.zeros(width, np.int64), np.zeros(width), np.zeros(width))
    for values in chunks:
        total = total + sums(values, centre)
    return total


def _one_block(frame: pd.DataFrame) -> bool:
    dtypes = set(frame.dtypes)
    return len(dtypes) == 1 and next(iter(dtypes)) in (np.dtype(np.float32), np.dtype(np.float64))


def _slices(n: int) -> Iterator[slice]:
    return (slice(at, at + _CHUNK) for at in range(0, n, _CHUNK))


def _refuse_infinite(around_zero: Sums, names: Sequence[str]) -> None:
    for name, total in zip(names, around_zero.total, strict=True):
        if not np.isfinite(total):
            raise DataError(f"data: feature '{name}' holds an infinite value; correct it or leave it empty")


def _refuse_missing(table: _Columns, order: NDArray[np.int64]) -> None:
    counts = [len(order) - n for n in _total(table.rows(order), len(table.numeric)).count.tolist()]
    counts += [int((codes[order] < 0).sum()) for codes in table.codes]
    for name, n in zip([*table.numeric, *table.categorical], counts, strict=True):
        if n:
            raise DataError(
                f"data.preprocessing: none, but feature '{name}' has {n:,} missing values; "
                "use standard, fill them, or drop the column"
            )
