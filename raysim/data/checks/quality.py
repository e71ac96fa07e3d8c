"""Find differences between hospitals in a table that suggest errors, before anything is trained.

For example, a hospital may use other units, write 0 for missing values, lack a column, or have another hospital's rows.
The checks read the source's unprepared columns. In a large table, most of the checks read only a sample of rows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats, Ints
from raysim.core.csv_files import is_number
from raysim.core.words import counted, listed
from raysim.data.checks.suspects import LEVELS, Suspect, columns_at, in_order
from raysim.data.raw_columns import RawColumns

FACTORS = {
    1000.0: "about a thousand times",
    100.0: "about a hundred times",
    88.4: "about 88.4 times, as creatinine in mg/dl and µmol/l",
    38.67: "about 38.7 times, as cholesterol in mmol/l and mg/dl",
    18.02: "about 18 times, as glucose in mmol/l and mg/dl",
    17.1: "about 17.1 times, as bilirubin in mg/dl and µmol/l",
    10.0: "about ten times",
    1.8: "about 1.8 times",
}
"""Factors between usual units of a measurement, with their descriptions in messages."""

_ENOUGH = 20  # fewest recorded values of a hospital whose quartiles are compared
_ROWS = 10  # fewest rows with the same value, or without a value, at a hospital; fewest shared rows
_NEAR = 1.2  # largest ratio between a ratio of medians and a factor
_LARGE = 8.0  # factors above this give a warning
_FAHRENHEIT = 1.8, 32.0, 0.01  # factor, offset, and the largest relative deviation of a quartile
_MEASURED = 20  # fewest different values of a measurement
_MARKED, _USUAL = 0.1, 0.01  # least share of rows with an odd value at suspect hospitals, and largest share elsewhere
_CHANCE = 0.001  # largest expected number of hospitals without a value by chance, over all columns
_SHARED = 0.5  # least share of a hospital's rows or patients that other hospitals also have
_COMMON = 5  # a row that at least so many hospitals have is common, and no sign of a copy
_COPIED = 2_000_000  # largest number of rows that are compared with each other
_COMMONER = 0.6  # share of rows above which an event is reported as the commoner class
_CLASSES = 20  # with more classes than this, numbers may be a quantity
_CODE = re.compile(r"-1|-9{1,6}|9{3,6}")  # numbers that programs write for a missing value
_NAMED = 3  # hospitals that a text names


@dataclass(frozen=True, eq=False)
class _Column:
    """The recorded values of a column of numbers, sorted by hospital."""

    name: str
    value: NDArray[Any]
    home: Ints
    sizes: Ints

    def quartiles(self) -> Floats:
        """Compute the lower quartile, median and upper quartile of each hospital, ``[3, H]``; NaN for a hospital with
        few values.
        """
        order = np.argsort(self.value)
        order = order[np.argsort(self.home[order].astype(np.min_scalar_type(len(self.sizes))), kind="stable")]
        starts, enough = np.cumsum(self.sizes) - self.sizes, self.sizes >= _ENOUGH
        found = np.full((3, len(self.sizes)), np.nan)
        for row, share in zip(found, (0.25, 0.5, 0.75), strict=True):
            row[enough] = self.value[order[starts[enough] + (share * (self.sizes[enough] - 1)).astype(np.int64)]]
        return found


def check(
    table: RawColumns,
    rows: Ints,
    home: Ints,
    hospitals: Sequence[str],
    y: NDArray[Any],
    classes: Sequence[str],
    patients: NDArray[Any] | None,
    unlike: Collection[str] = (),
) -> tuple[Suspect, ...]:
    """Return the suspected errors in the rows ``rows [n]`` of ``table``, the most serious first.

    ``home [n]`` is the hospital of each row, and ``patients [n]`` its patient, if known. ``y [n]`` is each row's label:
    the index of a class, or a real number if ``classes`` is empty. ``unlike`` are columns that the search for copied
    rows ignores, because they differ in every row.
    """
    order = in_order(home)
    checks = _Checks(tuple(hospitals), home[order], len(table.order))
    found, absent = [*_of_label(y, classes)], dict[tuple[int, ...], list[str]]()
    if patients is not None:
        found += _of_patients(patients, home, hospitals)
    for name, values in columns_at(table, rows[order]):
        missing = np.isnan(values) if values.dtype.kind == "f" else values < 0
        if (where := checks.absent(missing)).any():
            absent.setdefault(tuple(np.flatnonzero(where).tolist()), []).append(name)
        if values.dtype.kind == "f":
            found += checks.numbers(name, values[~missing], checks.home[~missing])
    found += (checks.without(where, names) for where, names in absent.items())
    if len(rows) <= _COPIED:
        found += _copies(table, rows, home, hospitals, unlike)
    return tuple(sorted(found, key=lambda suspect: LEVELS.index(suspect.level)))


@dataclass(frozen=True, eq=False)
class _Checks:
    hospitals: tuple[str, ...]
    home: Ints
    columns: int

    def absent(self, missing: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a mask ``[H]`` of the hospitals where a column has no value and this is hardly chance."""
        H = len(self.hospitals)
        if not missing.any():
            return np.zeros(H, np.bool_)
        sizes, lacking = (np.bincount(h, minlength=H) for h in (self.home, self.home[missing]))
        whole = sizes == lacking
        usual = lacking[~whole].sum() / max(int(sizes[~whole].sum()), 1)
        chance = usual**sizes * H * self.columns
        return np.asarray(whole & (sizes >= _ROWS) & (chance < _CHANCE) & ~whole.all())

    def without(self, where: tuple[int, ...], names: Sequence[str]) -> Suspect:
        quoted = [f"'{name}'" for name in names]
        what = f"feature {quoted[0]} has" if len(names) == 1 else f"features {_named(quoted)} have"
        at = _named([self.hospitals[h] for h in where])
        return Suspect(names[0], "ask", f"{what} no value at {at}: training there lacks this information")

    def numbers(self, name: str, value: NDArray[Any], home: Ints) -> Iterator[Suspect]:
        if not len(value):
            return
        sizes = np.bincount(home, minlength=len(self.hospitals))
        if sizes.max() < _ROWS:
            return
        column = _Column(name, value, home, sizes)
        suspects = (find(column) for find in (self._marked, self._filled, self._units, self._coded))
        yield from filter(None, [next(filter(None, suspects), None)])

    def _marked(self, column: _Column) -> Suspect | None:
        """Report a value that may stand for a missing value, because it is frequent at a few hospitals and rare at most
        other hospitals.
        """
        value = column.value
        for odd in {float(value.min()), float(value.max())}:
            at = value == odd
            if at.sum() < _ROWS or at.all():
                continue
            others = value[~at].astype(np.float64)
            if np.abs(others - odd).min() <= others.std() or len(np.unique(others)) < _MEASURED:
                continue
            rows = np.bincount(column.home[at], minlength=len(column.sizes))
            share, enough = rows / np.maximum(column.sizes, 1), column.sizes >= _ROWS
            marked = (rows >= _ROWS) & (share >= _MARKED)
            if not marked.any() or 2 * (enough & (share <= _USUAL)).sum() < enough.sum():
                continue
            of = f"{rows[marked].sum():,} of {column.sizes[marked].sum():,} rows"
            of = f"all {rows[marked].sum():,} rows" if (share[marked] == 1).all() else of
            text = f"feature '{column.name}' is {odd:g} in {of} of {self._named(marked)} and far from it elsewhere"
            return Suspect(column.name, "ask", f"{text}: does {odd:g} stand for a missing value?")
        return None

    def _filled(self, column: _Column) -> Suspect | None:
        """Report a measurement that a hospital may have filled in: all its rows have one value, which is rare
        elsewhere.
        """
        value, sizes = column.value, column.sizes
        filled = np.flatnonzero(sizes)
        starts = (np.cumsum(sizes) - sizes)[filled]
        low, high = np.minimum.reduceat(value, starts), np.maximum.reduceat(value, starts)
        enough = sizes[filled] >= _ROWS
        same = enough & (low == high)
        if not same.any() or 2 * same.sum() > enough.sum() or len(np.unique(value)) < _MEASURED:
            return None
        varied = value[~np.isin(column.home, filled[same])]
        rare = same & np.array([one and (varied == v).mean() <= _MARKED for one, v in zip(same, low, strict=True)])
        if not rare.any():
            return None
        at = np.isin(np.arange(len(sizes)), filled[rare])
        text = f"feature '{column.name}' has one value in all {sizes[at].sum():,} rows of {self._named(at)}"
        return Suspect(column.name, "ask", f"{text} and varies elsewhere: was it filled in?")

    def _units(self, column: _Column) -> Suspect | None:
        """Report a measurement that is in another unit at some hospitals."""
        sides = _two_sides(column.quartiles())
        if sides is None:
            return None
        low, high, less = sides
        factor, offset, near = _FAHRENHEIT
        fits: Iterator[tuple[float, str]] = (
            (k, conversion)
            for k, conversion in FACTORS.items()
            if np.abs(np.log(high / low / k)).max() <= np.log(_NEAR)
        )
        if np.abs((high - offset) / factor / low - 1).max() <= near:
            fits = iter([(np.inf, "as degrees Celsius and Fahrenheit are")])
        for found, name in fits:
            medians = f"medians near {low[1]:.3g} and near {high[1]:.3g}, {name}"
            few = f"the smaller group is {self._named(less)}: convert all to one unit"
            text = f"feature '{column.name}' has {medians}; {few}"
            return Suspect(column.name, "warn" if found > _LARGE else "ask", text)
        return None

    def _coded(self, column: _Column) -> Suspect | None:
        """Report a column whose lowest or highest number is a usual code for a missing value, such as -999."""
        value = column.value
        for odd in {float(value.min()), float(value.max())}:
            if not _CODE.fullmatch(f"{odd:g}"):
                continue
            at = value == odd
            others = value[~at]
            if at.sum() < _ROWS or len(np.unique(others)) < _MEASURED:
                continue
            low, high = float(others.min()), float(others.max())
            if low >= 0 if odd < 0 else odd - high > high - low:
                rows = counted(int(at.sum()), "row")
                text = f"feature '{column.name}' is {odd:g} in {rows} and {low:g} to {high:g} elsewhere"
                return Suspect(column.name, "ask", f"{text}: does {odd:g} stand for a missing value?")
        return None

    def _named(self, at: NDArray[np.bool_]) -> str:
        return _named([self.hospitals[h] for h in np.flatnonzero(at)])


def _two_sides(quartiles: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]] | None:
    """Divide hospitals into a group of low and a group of high values by their ``quartiles [3, H]``.

    Return the low group's quartiles ``[3]``, the high group's quartiles ``[3]`` (each the median over the group's
    hospitals), and a mask ``[H]`` of the smaller group. Return None if the groups overlap, or if hospitals within a
    group differ too much.
    """
    known = np.flatnonzero(quartiles[0] > 0)
    if len(known) < 2:
        return None
    known = known[np.argsort(quartiles[1, known], kind="stable")]
    medians = np.log(quartiles[1, known])
    at = int(np.diff(medians).argmax()) + 1
    below, above = known[:at], known[at:]
    low, high = (np.median(quartiles[:, side], axis=1) for side in (below, above))
    within = max(medians[at - 1] - medians[0], medians[-1] - medians[at])
    if quartiles[2, below].max() >= quartiles[0, above].min() or within > np.log(high[1] / low[1]) / 2:
        return None
    return low, high, np.isin(np.arange(quartiles.shape[1]), below if len(below) < len(above) else above)


def _of_label(y: NDArray[Any], classes: Sequence[str]) -> Iterator[Suspect]:
    if len(classes) == 2 and (share := float(np.mean(y == 1))) > _COMMONER:
        text = f"the event '{classes[1]}' is the commoner class ({share:.1%} of rows)"
        yield Suspect("", "warn", f"{text}: if '{classes[0]}' is what is predicted, name it (data.positive)")
    if len(classes) > _CLASSES and all(is_number(name) for name in classes):
        text = f"the label has {len(classes):,} classes, all of them numbers"
        yield Suspect("", "warn", f"{text}: if it is a quantity, set data.task: regression")


def _of_patients(patients: NDArray[Any], home: Ints, hospitals: Sequence[str]) -> Iterator[Suspect]:
    import pandas as pd

    person, numbers = pd.factorize(patients)
    if len(numbers) == len(home):
        return
    pairs = np.sort(home * len(numbers) + person)  # numpy's unique takes a minute for a million patients
    where, who = np.divmod(pairs[np.append(True, pairs[1:] != pairs[:-1])], len(numbers))
    at = np.bincount(who)
    several = int((at > 1).sum())
    if not several:
        return
    own = np.bincount(where, minlength=len(hospitals))
    shared = np.bincount(where[at[who] > 1], minlength=len(hospitals))
    judged = own >= _ROWS
    text = f"{several:,} of {counted(len(at), 'patient')} have rows at several hospitals"
    if judged.any() and np.median(shared[judged] / own[judged]) >= _SHARED:
        text += (
            ": if each hospital numbers its own patients, these are different people; add the hospital to the number"
        )
        yield Suspect("", "warn", text)
    else:
        yield Suspect("", "list", f"{text}; all rows of a patient are in one part")


def _copies(
    table: RawColumns, rows: Ints, home: Ints, hospitals: Sequence[str], unlike: Collection[str]
) -> Iterator[Suspect]:
    """Report pairs of hospitals that share many rows with equal features; labels are not compared."""
    hashed = _hashed(table, rows, unlike)
    order = np.lexsort((home, hashed))
    hashed, at = hashed[order], home[order]
    first = np.append(True, (hashed[1:] != hashed[:-1]) | (at[1:] != at[:-1]))  # each row of a hospital once
    hashed, at = hashed[first], at[first]
    _, row, count = np.unique(hashed, return_inverse=True, return_counts=True)
    distinct = np.bincount(at, minlength=len(hospitals))
    again = (hashed[1:] == hashed[:-1]) & (count[row[1:]] < _COMMON)
    pairs, shared = np.unique(np.column_stack([at[:-1], at[1:]])[again], axis=0, return_counts=True)
    for (a, b), n in zip(pairs.tolist(), shared.tolist(), strict=True):
        smaller = min(distinct[a], distinct[b])
        if n >= _ROWS and n >= _SHARED * smaller:
            text = f"{n:,} of {smaller:,} different rows of {_named([hospitals[a], hospitals[b]])} are the same"
            yield Suspect("", "warn", f"{text}: is one a copy of the other? name the hospitals to keep")


def _hashed(table: RawColumns, rows: Ints, unlike: Collection[str]) -> NDArray[np.uint64]:
    import pandas as pd

    hashed = np.zeros(len(rows), np.uint64)
    numeric = ((name, table.values[:, j]) for j, name in enumerate(table.numeric))
    for name, values in [*numeric, *zip(table.categorical, table.codes, strict=True)]:
        if name not in unlike:
            hashed = hashed * np.uint64(1_000_003) ^ pd.util.hash_array(np.ascontiguousarray(values[rows]))
    return hashed


def _named(names: Sequence[str]) -> str:
    return listed(names, _NAMED)
