"""Tables by formula, whose fits other programs have computed: all inputs are multiples of 1/8."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.problem import Floats
from raysim.strategies.regressions.families import Family
from raysim.strategies.regressions.newton_steps import fitted


class Table(NamedTuple):
    """Rows of several hospitals: the design ``[n, 3]``, outcomes of three families and the hospital of each row."""

    X: Floats
    y: Floats
    counts: Floats
    real: Floats
    hospital: NDArray[np.int64]

    def of(self, hospital: int) -> tuple[Floats, Floats]:
        """The design and the binary outcomes of one hospital."""
        rows = self.hospital == hospital
        return self.X[rows], self.y[rows]


def _columns(r: NDArray[np.int64], h: NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
    return ((7 * r + 3) % 13 - 6) / 4, ((5 * r + 2 * h) % 11 - 5) / 4, ((11 * r + 4 * h) % 17 - 8) / 4


def table_t() -> Table:
    """Three hospitals of twelve rows."""
    r = np.arange(36)
    h = r // 12
    x1, x2, s = _columns(r, h)
    y = (x1 - x2 / 2 + s + (h - 1) / 2 > 0).astype(float)
    count = (3 * r**2 + 2 * h + r) % 5 + (x1 > 0).astype(float)
    return Table(np.column_stack([np.ones(36), x1, x2]), y, count, 1 + x1 - x2 / 2 + s / 2 + (h - 1), h)


def table_g() -> Table:
    """Eight hospitals of twelve rows, which differ in their intercepts."""
    r = np.arange(96)
    h = r // 12
    x1, x2, s = _columns(r, h)
    d = ((5 * h % 8) - 3.5) * 0.6
    y = (x1 - x2 / 2 + s + d > 0).astype(float)
    return Table(np.column_stack([np.ones(96), x1, x2]), y, np.zeros(96), 1 + x1 - x2 / 2 + s / 2 + d, h)


SEPARATED = np.array([[1, 0.5, 1.25], [1, -1, -0.25], [1, 0.75, 1]]), np.array([0.0, 1.0, 1.0])
"""Three rows that a line through two columns separates."""


def left_out(family: Family, X: Floats, y: Floats, ridge: float) -> float:
    """The mean loss of rows that a ridge fit has not seen, each left out in turn."""
    rows = np.arange(len(y))
    fits = [fitted(family, X[rows != i], y[rows != i], ridge=ridge).beta for i in rows]
    return float(np.mean([family.loss(X[i] @ fit, y[i]) for i, fit in zip(rows, fits, strict=True)]))
