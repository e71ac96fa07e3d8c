"""Features by what is declared of their columns, in place of what training rows hold.

A range from a public data dictionary scales a column without a look at any row. Or it bounds what a row adds to the
sums that means and deviations follow from, so that these can be told with noise: of each numeric column a patient's row
adds ``(1, u, u^2)`` where it is there, ``u`` being its value from -1 at the low end of the range to 1 at the high end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import DataError, nearest
from raysim.core.streams import stream
from raysim.data.contribution import drawn
from raysim.data.fitted import Categorical, Floats, Numeric, Preprocessing, RawColumns
from raysim.privacy.events import Gaussian, Laplace
from raysim.privacy.noisy_sums import Bounds, Mechanism, told

Declared = Mapping[str, Sequence[Any]]
"""By column: the least and the greatest number, or all categories; a null among them says that a value may be missing.
"""

QUARTER = 0.5
"""The deviation of a column of which nothing is known but its range, in half ranges: nearly all of a normal column is
then within two deviations of the middle."""

LEAST_DEVIATION = 1.0 / 16.0
"""What a noisy deviation is at least, in half ranges: below it is noise, and dividing by it would blow up values."""


@dataclass(frozen=True)
class Range:
    """Of a column of numbers."""

    low: float
    """The least."""
    high: float
    """The greatest."""
    missing: bool
    """Whether values may be missing."""

    @property
    def middle(self) -> float:
        """Half way between the ends."""
        return (self.low + self.high) / 2.0

    @property
    def half(self) -> float:
        """From there to each end."""
        return (self.high - self.low) / 2.0


@dataclass(frozen=True)
class ScalerNoise:
    """How means and deviations are told with noise."""

    mechanism: Mechanism
    """The noise."""
    unit: Literal["patient", "example"]
    """Whose rows are clipped together."""
    rows: int
    """The most rows of a unit."""
    shared: bool
    """Whether hospitals' sums are secure, so that each adds a share of normal noise."""

    @property
    def named(self) -> str:
        """What a federation that was made with it says of it."""
        return f"{self.mechanism.event!r}, {self.unit}, {self.rows}"

    def at_each(self, hospitals: int) -> Mechanism:
        """The noise that each of so many hospitals adds.

        Two thirds of all shares but one, which a hospital knows of itself, hold the whole noise. Shares of Laplace
        noise do not add up to such noise, so that each hospital adds all of it.
        """
        event = self.mechanism.event
        if not self.shared or not isinstance(event, Gaussian):
            return self.mechanism
        share = math.sqrt(max(2 * hospitals // 3 - 1, 1))
        return Mechanism(replace(event, multiplier=event.multiplier / share), self.mechanism.origin)


def ranges_of(declared: Declared, table: RawColumns) -> dict[str, Range | Categorical]:
    """What is declared of each column of a table. Raises ``DataError`` for a column of which nothing usable is."""
    for name in declared:
        if name not in table.order:
            raise DataError(f"data.ranges: no feature is called '{name}'; {nearest(name, table.order)}")
    described: dict[str, Range | Categorical] = {}
    for name in table.order:
        if name not in declared:
            raise DataError(
                f"data.ranges: says nothing of feature '{name}'; give its least and greatest value as [0, 100], or its "
                "categories, with null among them where values may be missing"
            )
        values = [value for value in declared[name] if value is not None]
        missing = len(values) < len(declared[name])
        if name in table.categorical:
            described[name] = Categorical(name, tuple(dict.fromkeys(str(value) for value in values)), missing)
            continue
        numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        if len(numbers) != 2 or len(values) != 2 or not -math.inf < numbers[0] < numbers[1] < math.inf:
            raise DataError(
                f"data.ranges.{name}: {list(declared[name])} is no range of numbers; give the least and the greatest "
                "value, as [0, 100]"
            )
        described[name] = Range(numbers[0], numbers[1], missing)
    return described


def declared_alone(described: Mapping[str, Range | Categorical]) -> Preprocessing:
    """Features by declarations, without a look at any row: a column's deviation is taken for a quarter of its range."""
    columns = {
        name: Numeric(name, each.middle, QUARTER * each.half, each.middle, each.missing)
        for name, each in described.items()
        if isinstance(each, Range)
    }
    return _of("declared", described, columns)


def with_noise(
    described: Mapping[str, Range | Categorical],
    table: RawColumns,
    rows: Sequence[NDArray[np.int64]],
    people: Sequence[NDArray[np.int64]],
    noise: ScalerNoise,
    seed: int,
) -> tuple[Preprocessing, int]:
    """Features by noisy means and deviations, and how many scalars each hospital has told for them.

    ``rows`` are those in the table that each hospital trains on, ``people`` the unit of each of these.
    """
    ranges = [each for name in table.numeric if isinstance(each := described[name], Range)]
    middle, half = np.array([r.middle for r in ranges]), np.array([r.half for r in ranges])
    how, width = noise.at_each(len(rows)), 3 * len(ranges)
    bounds = Bounds(float(width), math.sqrt(width))
    total = np.zeros(width)
    for hospital, (at, who) in enumerate(zip(rows, people, strict=True)):
        own = drawn(who, stream(seed, "contribution", hospital).permutation(len(at)), noise.rows)
        added = moments(table.values[at[own.rows]], middle, half)
        total += told(added, own.patient, how, bounds, seed, "dp preprocessing", hospital)
    count, first, second = total.reshape(3, -1)
    enough = count > _deviation(how, bounds) * math.sqrt(len(rows))
    n = np.where(enough, count, 1.0)
    mean = np.where(enough, np.clip(first / n, -1.0, 1.0), 0.0)
    deviation = np.sqrt(np.clip(second / n - mean * mean, LEAST_DEVIATION**2, 1.0))
    deviation = np.where(enough, deviation, QUARTER)
    columns = {
        name: Numeric(name, float(m), float(s), float(m), each.missing)
        for name, each, m, s in zip(table.numeric, ranges, middle + half * mean, half * deviation, strict=True)
    }
    return _of("standard", described, columns), width


def moments(values: NDArray[Any], middle: Floats, half: Floats) -> Floats:
    """What rows ``values [n, D]`` add to the sums, ``[n, 3 D]``: whether each is there, its place, and its square."""
    placed = (values.astype(np.float64) - middle) / half
    there = ~np.isnan(placed)
    placed = np.where(there, np.clip(placed, -1.0, 1.0), 0.0)
    added: Floats = np.concatenate([there, placed, placed * placed], axis=1)
    return added


def _deviation(how: Mechanism, bounds: Bounds) -> float:
    """That of one hospital's noise on each sum."""
    spread = math.sqrt(2.0) if isinstance(how.event, Laplace) else 1.0
    return spread * how.event.multiplier * how.bound(bounds)


def _of(method: str, described: Mapping[str, Range | Categorical], numeric: Mapping[str, Numeric]) -> Preprocessing:
    columns = [each if isinstance(each, Categorical) else numeric[name] for name, each in described.items()]
    return Preprocessing(method, tuple(columns))
