"""Sums that do not depend on the order of their terms.

The result of a floating-point sum depends on the order of the terms, and hence on how hospitals are distributed over
actors. Terms are therefore rounded to multiples of 2^-44 (6e-14, a millionth of the resolution of float32 parameters
near 1). The rounded terms are added as 64-bit integers without error, so the sum is always the same, bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FRACTION_BITS = 44


def largest_entry(weights: float) -> float:
    """Return a bound: if all entries of the vectors are smaller in magnitude, no weighted sum of them overflows.

    ``weights`` is the sum of the magnitudes of all weights.
    """
    return 2.0 ** (62 - FRACTION_BITS) / weights if weights > 0 else float("inf")


class ExactSum:
    """``G`` sums of vectors ``[P]``, stored as integers. ``units [G, P]`` has one row for each sum."""

    def __init__(self, groups: int, size: int) -> None:
        self.units = np.zeros((groups, size), dtype=np.int64)
        self._scaled = np.empty(size, dtype=np.float64)
        self._rounded = np.empty(size, dtype=np.int64)

    def add(self, group: int, weight: float, vector: NDArray[Any]) -> None:
        """Add ``weight * vector`` to the sum with the index ``group``.

        The magnitudes of the vector's entries must be finite and below :func:`largest_entry`.
        """
        np.multiply(vector, weight * 2.0**FRACTION_BITS, out=self._scaled)
        np.rint(self._scaled, out=self._scaled)
        np.copyto(self._rounded, self._scaled, casting="unsafe")
        self.units[group] += self._rounded


def exact_multiple(value: float) -> float:
    """Round ``value`` so that its product with any whole number up to 2^31 can be added to an exact sum without
    rounding.

    The result is a multiple of 2^-44, is never 0, and has at most 22 binary digits.
    """
    units = abs(value) * 2.0**FRACTION_BITS
    digit = 2.0 ** max(0, int(np.floor(np.log2(max(units, 1.0)))) - 21)
    return float(np.copysign(max(np.rint(units / digit), 1.0) * digit * 2.0**-FRACTION_BITS, value))


def decode(units: NDArray[np.int64]) -> NDArray[np.float64]:
    """Convert sums of :class:`ExactSum` from integers to float64."""
    return np.multiply(units, 2.0**-FRACTION_BITS, dtype=np.float64)
