"""The AUROC of one column alone within hospitals, with its standard error.

Only rows of the same hospital are compared, so a column that merely identifies hospitals has an AUROC of 0.5.

The standard error is Hanley and McNeil's (1982), which needs only the AUROC and the numbers of rows. DeLong's standard
error would be 0 for a column that separates the classes, even with ten rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Ints
from raysim.core.levels import Z
from raysim.metrics.measures import hanley_mcneil
from raysim.metrics.segments import sortable

FEWEST = 5
"""A hospital is included only if it has at least this many rows of the class, and this many other rows."""

# Rows are sorted by a key of 64 bits: hospital from bit 40, value from bit 8, class below. Masks of value and class
# follow.
_HOSPITAL, _VALUE = np.uint64(40), np.uint64(8)
_BITS, _CLASS = np.uint64(0xFFFFFFFF), np.uint64(0xFF)


@dataclass(frozen=True)
class Separation:
    """How well one column separates one class from the rest: the AUROC within hospitals."""

    auroc: float
    """The mean AUROC over included hospitals, weighted by ``m n / (m + n)`` for ``m`` rows of the class and ``n`` other
    rows; NaN if no hospital is included.
    """
    se: float
    hospitals: int
    """The number of included hospitals."""

    @property
    def low(self) -> float:
        """The lower limit of the 95 % confidence interval."""
        return self.auroc - Z * self.se


@dataclass(frozen=True, eq=False)
class Cells:
    """The rows of one column, counted in ``G`` cells: one per hospital and value, sorted by hospital, then by value."""

    hospital: Ints
    value: NDArray[Any]
    """A number for each cell, ``[G]``, that increases with the value of the column, and is equal for the same value at
    different hospitals.
    """
    counts: Ints
    """The number of rows of each of the ``C`` classes in each cell, ``[G, C]``."""

    @staticmethod
    def of(hospital: Ints, value: NDArray[Any], y: Ints, classes: int) -> Cells:
        """Count ``n`` rows; ``value [n]`` is the value of each row, and ``y [n]`` its class.

        Values are single-precision numbers other than NaN, or whole numbers from 0 to 2^32 - 1. There may be up to 2^24
        hospitals and 256 ``classes``.
        """
        bits = sortable(value.astype(np.float32)) if value.dtype.kind == "f" else value
        # One sort of whole numbers is several times faster than sorting rows by value and then by hospital.
        keys = hospital.astype(np.uint64) << _HOSPITAL | bits.astype(np.uint64) << _VALUE | y.astype(np.uint64)
        keys.sort()
        group = keys >> _VALUE
        first = np.flatnonzero(_starts(group))
        cell = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(keys))))
        of_class = (keys & _CLASS).astype(np.int64)
        counts = np.bincount(cell * classes + of_class, minlength=len(first) * classes).reshape(-1, classes)
        cells = group[first]
        return Cells((cells >> (_HOSPITAL - _VALUE)).astype(np.int64), cells & _BITS, counts)

    def by_rate_elsewhere(self, event: int) -> Cells:
        """Replace each value by the share of the class ``event`` among rows with this value at other hospitals.

        If no other hospital has the value, the share is taken over all rows of other hospitals. The new value of a row
        does not depend on labels of its own hospital. The result has two classes: 1 for ``event``, and 0 for all
        others.
        """
        n, k = self.counts.sum(axis=1), self.counts[:, event]
        _, code = np.unique(self.value, return_inverse=True)
        rows, events = np.bincount(code, n)[code] - n, np.bincount(code, k)[code] - k
        at = self.hospital
        all_rows, all_events = n.sum() - np.bincount(at, n)[at], k.sum() - np.bincount(at, k)[at]
        overall = np.divide(all_events, all_rows, out=np.zeros(len(at)), where=all_rows > 0)
        rate = np.divide(events, rows, out=overall, where=rows > 0)
        order = np.lexsort((rate, at))
        h, v = at[order], rate[order]
        first = _starts(h) | _starts(v)
        counts = np.add.reduceat(np.column_stack([n - k, k])[order], np.flatnonzero(first))
        return Cells(h[first], v[first], counts)


def separation(cells: Cells, event: int, *, directed: bool = False) -> Separation:
    """Compute how well the values of ``cells`` rank rows of class ``event`` above other rows of the same hospital.

    With ``directed``, rows of the class are expected to have the higher values. Otherwise, the same direction is chosen
    for all hospitals: the one with the higher mean AUROC.
    """
    k = cells.counts[:, event].astype(np.float64)
    others = cells.counts.sum(axis=1) - k
    if not len(k):
        return Separation(np.nan, np.nan, 0)
    starts = np.flatnonzero(_starts(cells.hospital))
    m, n = np.add.reduceat(k, starts), np.add.reduceat(others, starts)
    below = np.cumsum(others) - others
    below -= np.repeat(below[starts], np.diff(np.append(starts, len(k))))
    won = np.add.reduceat(k * (below + others / 2.0), starts)
    counts = (m >= FEWEST) & (n >= FEWEST)
    m, n, won = m[counts], n[counts], won[counts]
    if not len(m):
        return Separation(np.nan, np.nan, 0)
    weight = m * n / (m + n)
    auroc = float((won / (m + n)).sum() / weight.sum())
    if not directed:
        auroc = max(auroc, 1.0 - auroc)
    # Half a wrongly ranked pair is added, so that the variance is not 0 at an AUROC of 1.
    pairs = float((m * n).sum())
    shrunk = (auroc * pairs + 0.5) / (pairs + 1.0)
    variance = (weight**2 * hanley_mcneil(shrunk, m, n)).sum() / weight.sum() ** 2
    return Separation(auroc, float(np.sqrt(variance)), len(m))


def _starts(values: NDArray[Any]) -> NDArray[np.bool_]:
    first = np.ones(len(values), bool)
    first[1:] = values[1:] != values[:-1]
    return first
