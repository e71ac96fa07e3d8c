"""Turn a source's columns into features of a model. Preprocessing is fitted on training rows alone.

The method ``standard`` needs only sums over rows, which hospitals compute and the server adds up. For a numeric
feature, a hospital sends the number of observed values, their sum and, in a second pass, the sum of squared deviations
from the mean. For a categorical feature, it sends the number of rows of each category.

``median`` imputes the median of all hospitals' values instead of the mean. A median cannot be computed from sums, so
the method is not federated, and is for comparison with centralised pipelines only. ``none`` leaves numbers unchanged.
``raw``, for boosted trees, also leaves missing values unchanged and replaces each category by its position among the
categories. ``declared`` uses declared ranges and categories (:mod:`raysim.data.declared`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats
from raysim.core.errors import DataError
from raysim.core.words import counted
from raysim.data.declared import Declared, SumNoise, declared_alone, declared_raw, ranges_of, with_noise
from raysim.data.fitted import RAW, Categorical, Numeric, Preprocessing
from raysim.data.raw_columns import RawColumns, refuse_missing, slices

if TYPE_CHECKING:
    import pandas as pd

METHODS = ("standard", "median", "none", "declared", RAW)
# A deviation below this share of the mean comes from rounding: the column does not vary.
_CONSTANT = 1e-12


@dataclass(frozen=True)
class Sums:
    """Sums over the rows of one or more hospitals, for ``D`` numeric columns. Adding two objects gives the sums over
    all rows of the two.

    ``count [D]`` is the number of observed values. ``total [D]`` and ``squares [D]`` are the sums of (value - centre)
    and (value - centre)^2, where the centre is 0 or the column's mean.
    """

    count: NDArray[np.int64]
    total: Floats
    squares: Floats

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.count + other.count, self.total + other.total, self.squares + other.squares)


def sums(values: NDArray[Any], centre: Floats | float = 0.0) -> Sums:
    """Compute the sums over the rows of ``values [n, D]`` (NaN: not observed), with the centre ``centre [D]``."""
    shifted = values.astype(np.float64) - centre
    observed = ~np.isnan(shifted)
    shifted[~observed] = 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # infinite values give infinite sums, which are refused
        return Sums(observed.sum(axis=0), shifted.sum(axis=0), np.einsum("nd,nd->d", shifted, shifted))


@dataclass(frozen=True)
class Scaler:
    """The ``mean`` and standard deviation ``std`` of each column, ``[D]``; ``std`` is inf for a column that is constant
    up to rounding.
    """

    mean: Floats
    std: Floats

    @staticmethod
    def of(first: Sums, second: Sums) -> Scaler:
        """Compute means and standard deviations from sums with the centre 0 (``first``) and sums with the means as
        centre (``second``).

        With means as centre, standard deviations are accurate even if they are far smaller than the mean.
        """
        mean = _mean(first)
        std = np.sqrt(second.squares / np.maximum(second.count, 1))
        constant = std <= _CONSTANT * np.abs(mean)
        return Scaler(mean, np.where(constant, np.inf, std))


def _mean(around_zero: Sums) -> Floats:
    return np.asarray(around_zero.total / np.maximum(around_zero.count, 1))


@dataclass(frozen=True, eq=False, repr=False)
class Prepared:
    """The features of ``N`` rows, and the preprocessing that made them.

    - ``X [N, F]``: the float32 features: first ``D`` features with values, then the flags of missing values.
    - ``observed [N, D]``: whether each value was recorded.
    - ``scalars``: how many scalars each hospital sent to fit the preprocessing.
    - ``note``: a line on the method and the features, for ``raysim describe``.
    - ``left_out``: columns without a value in training rows, which are not features.
    """

    X: NDArray[np.float32]
    observed: NDArray[np.bool_]
    preprocessing: Preprocessing
    scalars: int
    note: str
    left_out: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features, ``[F]``."""
        return self.preprocessing.features


def prepare(
    features: pd.DataFrame,
    order: NDArray[np.int64],
    train: NDArray[np.bool_],
    method: str,
    hospitals: int,
    into: Path | None = None,
    *,
    flags: bool = True,
) -> Prepared:
    """Fit a preprocessing on the training rows, and compute the features of all rows, in the order ``order [N]``.

    ``train [N]`` is a mask of the training rows in the new order. The methods ``standard`` and ``median`` scale numeric
    columns. All methods except ``raw`` give each category of training rows a 0/1 feature; a category that training rows
    lack is 0 in all of these features. Each column with a missing training value gets a flag ``<column>_missing``,
    unless ``flags`` is false or the method is ``raw``. A column without any training value is left out.

    ``hospitals`` is the number of hospitals with training rows. ``into`` is the folder of the memory-mapped features
    (None: features are in memory). Raises ``DataError`` for values that are not finite float32 numbers and, with the
    method ``none``, for missing values.
    """
    table, training = RawColumns.of(features), order[train]
    around_zero = _total(table, training)
    if method != "none" and (empty := _empty(table, training, around_zero)):
        rest = features.loc[:, [str(name) not in empty for name in features.columns]]
        if not rest.shape[1]:
            raise DataError("data: no feature has a value in training rows; check the columns, or the split")
        return replace(prepare(rest, order, train, method, hospitals, into, flags=flags), left_out=tuple(empty))
    _refuse_infinite(around_zero, table.numeric)
    scaler = Scaler.of(around_zero, _total(table, training, _mean(around_zero)))
    trained = [np.flatnonzero(np.bincount(codes[training] + 1, minlength=1)[1:]) for codes in table.codes]
    scalars = 3 * len(table.numeric) + sum(len(codes) for codes in trained)
    mean, std, fill = scaler.mean, scaler.std, scaler.mean
    if method == "median":
        fill = _medians(table, training)
        scalars += math.ceil(around_zero.count.sum() / max(hospitals, 1))
    elif method == "none":
        refuse_missing(table, order)
        mean, std, fill = np.zeros_like(mean), np.ones_like(std), np.zeros_like(fill)
        scalars -= 3 * len(table.numeric)
    elif method == RAW:
        mean, std, fill, flags = np.zeros_like(mean), np.ones_like(std), np.full_like(fill, np.nan), False
        scalars -= 3 * len(table.numeric)

    complete = (around_zero.count == len(training)).tolist()
    numbers = zip(table.numeric, mean.tolist(), std.tolist(), fill.tolist(), complete, strict=True)
    columns: dict[str, Numeric | Categorical] = {
        name: Numeric(name, m, s, f, not all_) for name, m, s, f, all_ in numbers
    }
    for name, codes, categories, present in zip(table.categorical, table.codes, table.categories, trained, strict=True):
        flagged = bool((codes[training] < 0).any())
        columns[name] = Categorical(name, tuple(categories[c] for c in present), flagged, method == RAW)
    fitted = Preprocessing(method, tuple(columns[name] for name in table.order))
    return _prepared(fitted, table, order, scalars, into, flags)


def _empty(table: RawColumns, training: NDArray[np.int64], around_zero: Sums) -> list[str]:
    numbers = [name for name, count in zip(table.numeric, around_zero.count.tolist(), strict=True) if not count]
    texts = [name for name, codes in zip(table.categorical, table.codes, strict=True) if (codes[training] < 0).all()]
    return [*numbers, *texts]


def prepare_declared(
    features: pd.DataFrame,
    order: NDArray[np.int64],
    method: str,
    declared: Declared,
    noise: SumNoise | None,
    rows: Sequence[NDArray[np.int64]],
    people: NDArray[np.int64],
    seed: int,
    into: Path | None = None,
    *,
    flags: bool = True,
) -> Prepared:
    """Compute features from declared ranges and categories of columns. The ``method`` ``raw`` leaves numbers unchanged.
    Any other method scales numbers, by noisy means and standard deviations or, if ``noise`` is None, by the ranges
    alone.

    ``order [N]`` are the positions in ``features`` of the rows to use. ``rows`` lists, for each hospital, the positions
    of its training rows in ``order``. ``people [N]`` is the privacy unit (patient or row) of each row of ``order``.
    ``into`` is as in :func:`prepare`, and ``flags`` says whether added features flag missing values. Raises
    ``DataError`` for columns without a usable declaration.
    """
    table = RawColumns.of(features)
    described = ranges_of(declared, table)
    if method == RAW:
        return _prepared(declared_raw(described), table, order, 0, into, False)
    if noise is None:
        return _prepared(declared_alone(described), table, order, 0, into, flags)
    fitted, scalars = with_noise(described, table, [order[at] for at in rows], [people[at] for at in rows], noise, seed)
    return _prepared(fitted, table, order, scalars, into, flags)


def _prepared(
    fitted: Preprocessing, table: RawColumns, order: NDArray[np.int64], scalars: int, into: Path | None, flags: bool
) -> Prepared:
    if not flags:
        fitted = replace(fitted, columns=tuple(replace(column, flagged=False) for column in fitted.columns))
    X, observed = fitted.transform(table, order, into)
    D, count = len(fitted.values), len(fitted.flags)
    made = f"{counted(D, 'value column')} and {counted(count, 'flag')}"
    note = f"preprocessing: {fitted.method}, {counted(len(table.order), 'feature')} as {made}"
    return Prepared(X, observed, fitted, scalars, note)


def _medians(table: RawColumns, which: NDArray[np.int64]) -> Floats:
    """Compute the median of the recorded values of each numeric column, ``[D]``; 0 for a column that has none."""
    medians = np.zeros(len(table.numeric))
    for j in range(len(table.numeric)):
        column = table.values[which, j].astype(np.float64)
        column = column[~np.isnan(column)]
        if len(column):
            medians[j] = np.median(column)
    return medians


def _total(table: RawColumns, which: NDArray[np.int64], centre: Floats | float = 0.0) -> Sums:
    """Compute the sums of the numeric columns over the rows ``which``."""
    width = len(table.numeric)
    total = Sums(np.zeros(width, np.int64), np.zeros(width), np.zeros(width))
    for at in slices(len(which)):
        total = total + sums(table.values[which[at]], centre)
    return total


def _refuse_infinite(around_zero: Sums, names: Sequence[str]) -> None:
    for name, total in zip(names, around_zero.total, strict=True):
        if not np.isfinite(total):
            raise DataError(f"data: feature '{name}' holds an infinite value; correct it or leave it empty")
