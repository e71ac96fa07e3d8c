"""Prepare features by declared ranges and categories of their columns, rather than by the training rows.

A range from a public data dictionary scales a column without reading any row. Means and standard deviations may be
computed from sums with privacy noise. The range then also limits what a row adds to these sums, and thus the noise that
the sums need. A row adds ``(1, u, u^2)`` for each numeric column with a recorded value, where ``u`` is the value,
clipped to the range and scaled to -1 to 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats
from raysim.core.errors import DataError, nearest
from raysim.data.contribution import choose_rows, shuffled
from raysim.data.fitted import RAW, Categorical, Numeric, Preprocessing
from raysim.data.raw_columns import RawColumns

Declared = Mapping[str, Sequence[Any]]
"""The declaration of each column by name: its least and greatest number, or its categories. An additional None means
that values may be missing.
"""

QUARTER = 0.5
"""If only the range of a column is known, its standard deviation is assumed to be this share of half the range. Nearly
all values of a normal distribution lie within two standard deviations of its mean.
"""

LEAST_DEVIATION = 1.0 / 16.0
"""The lower limit of a standard deviation that is computed from noisy sums, as a share of half the column's range. A
smaller standard deviation would be mostly noise, and division by it would make values extremely large.
"""


@dataclass(frozen=True)
class Range:
    """The declared range of a column of numbers."""

    low: float
    """The least value, in the column's unit."""
    high: float
    """The greatest value, in the column's unit."""
    missing: bool

    @property
    def middle(self) -> float:
        """The middle of the range."""
        return (self.low + self.high) / 2.0

    @property
    def half_width(self) -> float:
        """Half the width of the range."""
        return (self.high - self.low) / 2.0


class SumNoise(Protocol):
    """The noise that each hospital adds to sums over its rows before it sends them; see :mod:`raysim.privacy`."""

    @property
    def unit(self) -> Literal["patient", "example"]:
        """The privacy unit: a patient, or an example (one row). The sum of a unit's rows is clipped."""

    @property
    def rows(self) -> int:
        """The largest number of rows that a privacy unit contributes."""

    @property
    def named(self) -> str:
        """The text that describes the noise; the federation stores this text."""

    @property
    def key(self) -> tuple[object, ...]:
        """A key that is equal for two noise settings that generate the same noise."""

    def sum_of(self, rows: Floats, unit: NDArray[np.int64], hospitals: int, seed: int, hospital: int) -> Floats:
        """Compute the noisy sum of each column of ``rows [n, K]``, whose entries are from -1 to 1.

        ``unit [n]`` is the privacy unit of each row. The sum of a unit's rows is clipped to the largest norm that one
        row can have. ``hospitals`` is the number of hospitals that send such sums. ``seed`` and ``hospital`` select the
        random stream of the noise.
        """

    def total(self, sums: Sequence[Floats], seed: int) -> Floats:
        """Compute the total ``[K]`` of the hospitals' noisy ``sums``, as the server learns it. ``seed`` is the key of
        the masks of secure aggregation.
        """

    def deviation(self, width: int, hospitals: int) -> float:
        """Return the standard deviation of the noise that one hospital adds to each of ``width`` sums."""


def ranges_of(declared: Declared, table: RawColumns) -> dict[str, Range | Categorical]:
    """Return the declared range or categories of each column of ``table``, by name. Raises ``DataError`` for a column
    without a usable declaration, and for a declared name that is no column.
    """
    for name in declared:
        if name not in table.order:
            raise DataError(f"data.ranges: no feature is called '{name}'; {nearest(name, table.order)}")
    described: dict[str, Range | Categorical] = {}
    for name in table.order:
        if name not in declared:
            raise DataError(
                f"data.ranges: has no entry for feature '{name}'; give its least and greatest value as [0, 100], or "
                "its categories, with null among them where values may be missing"
            )
        values = [value for value in declared[name] if value is not None]
        missing = len(values) < len(declared[name])
        if name in table.categorical:
            described[name] = Categorical(name, tuple(dict.fromkeys(str(value) for value in values)), missing)
            continue
        numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        if len(numbers) != 2 or len(values) != 2 or not -math.inf < numbers[0] < numbers[1] < math.inf:
            raise DataError(
                f"data.ranges.{name}: {list(declared[name])} is not a range of numbers; give the least and the "
                "greatest "
                "value, as [0, 100]"
            )
        described[name] = Range(numbers[0], numbers[1], missing)
    return described


def declared_alone(described: Mapping[str, Range | Categorical]) -> Preprocessing:
    """Return a preprocessing that reads no data. A column's mean is assumed to be the middle of its declared range, and
    its standard deviation a quarter of the range's width.
    """
    columns = {
        name: Numeric(name, each.middle, QUARTER * each.half_width, each.middle, each.missing)
        for name, each in described.items()
        if isinstance(each, Range)
    }
    return _of("declared", described, columns)


def declared_raw(described: Mapping[str, Range | Categorical]) -> Preprocessing:
    """Return a preprocessing for tree models: numbers are unchanged, and a category becomes its position among the
    declared categories.
    """
    columns = {
        name: Numeric(name, fill=math.nan, flagged=each.missing, limits=(each.low, each.high))
        for name, each in described.items()
        if isinstance(each, Range)
    }
    coded = {name: replace(each, coded=True) for name, each in described.items() if isinstance(each, Categorical)}
    return _of(RAW, {**described, **coded}, columns)


def with_noise(
    described: Mapping[str, Range | Categorical],
    table: RawColumns,
    rows: Sequence[NDArray[np.int64]],
    people: Sequence[NDArray[np.int64]],
    noise: SumNoise,
    seed: int,
) -> tuple[Preprocessing, int]:
    """Return a preprocessing that uses means and standard deviations with privacy noise, and the number of scalars that
    each hospital sends for it.

    ``rows`` lists for each hospital the positions of its training rows in ``table``. ``people`` lists for each hospital
    the privacy unit of each of these rows.
    """
    ranges = [each for name in table.numeric if isinstance(each := described[name], Range)]
    middle, half_width = np.array([r.middle for r in ranges]), np.array([r.half_width for r in ranges])
    width = 3 * len(ranges)
    sums = []
    for hospital, (at, who) in enumerate(zip(rows, people, strict=True)):
        contribution = choose_rows(who, shuffled(who, seed), noise.rows)
        added = moments(table.values[at[contribution.rows]], middle, half_width)
        sums.append(noise.sum_of(added, contribution.patient, len(rows), seed, hospital))
    count, first, second = noise.total(sums, seed).reshape(3, -1)
    enough = count > noise.deviation(width, len(rows)) * math.sqrt(len(rows))
    n = np.where(enough, count, 1.0)
    mean = np.where(enough, np.clip(first / n, -1.0, 1.0), 0.0)
    deviation = np.sqrt(np.clip(second / n - mean * mean, LEAST_DEVIATION**2, 1.0))
    deviation = np.where(enough, deviation, QUARTER)
    columns = {
        name: Numeric(name, float(m), float(s), float(m), each.missing)
        for name, each, m, s in zip(
            table.numeric, ranges, middle + half_width * mean, half_width * deviation, strict=True
        )
    }
    return _of("standard", described, columns), width


def moments(values: NDArray[Any], middle: Floats, half_width: Floats) -> Floats:
    """Compute what each row of ``values [n, D]`` adds to the sums: ``D`` counts, ``D`` values and ``D`` squares,
    ``[n, 3 D]``.

    A recorded value adds ``(1, u, u^2)``, where ``u`` is the value clipped to its declared range and scaled to -1 to 1.
    A missing value adds 0.
    """
    placed = (values.astype(np.float64) - middle) / half_width
    defined = ~np.isnan(placed)
    placed = np.where(defined, np.clip(placed, -1.0, 1.0), 0.0)
    return np.asarray(np.concatenate([defined, placed, placed * placed], axis=1))


def _of(method: str, described: Mapping[str, Range | Categorical], numeric: Mapping[str, Numeric]) -> Preprocessing:
    columns = [each if isinstance(each, Categorical) else numeric[name] for name, each in described.items()]
    return Preprocessing(method, tuple(columns))
