"""One hospital's contribution: each group's figure and its variance there, for each arrangement of group labels.

All sums are of whole numbers that floats represent exactly, so that equal figures agree to the last bit in any order of
addition.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.statistics.patient_groups.arrangements import Labels

Floats = NDArray[np.float64]

ONE_ROW = 1.0 / 12.0
"""Variance of a class with one row: the variance of a placement under uninformative scores (AUROC .5)."""

MOST_PAIRS = 1 << 21
"""Largest number of pairs of rows whose order is stored; with more, ranks are counted in time proportional to rows."""

BLOCK = 1 << 23
"""Number of labels processed at once."""

FRACTION_BITS = 36
"""Contributions are rounded to multiples of 2^-36 and added as integers, so that the order of hospitals does not
matter."""


class Figures(NamedTuple):
    """Figures of ``G`` groups under ``R`` arrangements, ``[G, R]``; NaN for a group without the needed rows."""

    value: Floats
    variance: Floats


def ranked(scores: ArrayLike, event: ArrayLike, labels: tuple[Labels, Labels], groups: int) -> Figures:
    """Compute AUROC and DeLong's variance of each group, among its own rows of one hospital.

    ``scores [n]`` and ``event [n]`` are those of rows with a known group. ``labels`` are the arrangements of events
    ``[m, R]`` and of other rows ``[n - m, R]``, in the order of rows. A class with one row adds :data:`ONE_ROW`.
    """
    z, positive = np.asarray(scores), np.asarray(event, dtype=bool)
    few, many, (few_labels, many_labels) = z[positive], z[~positive], labels
    if len(few) > len(many):  # the AUROC of the opposite scores for the opposite event is the same
        few, many, few_labels, many_labels = -many, -few, many_labels, few_labels
    order = np.argsort(few, kind="stable")
    few, few_labels = few[order], few_labels[order]
    value = np.full((groups, few_labels.shape[1]), np.nan)
    variance = np.full_like(value, np.nan)
    wins = _Wins(few, many)
    at_once = max(1, BLOCK // max(len(z), 1))
    for first in range(0, value.shape[1], at_once):
        some = slice(first, first + at_once)
        value[:, some], variance[:, some] = _of_groups(wins, few_labels[:, some], many_labels[:, some], groups)
    return Figures(value, variance)


class _Wins:
    """Count the rows of ``many [n]`` below each of the ascending ``few [m]``."""

    def __init__(self, few: NDArray[Any], many: NDArray[Any]) -> None:
        ordered = np.argsort(many, kind="stable")
        below, up_to = (np.searchsorted(many[ordered], few, side) for side in ("left", "right"))
        self.tied = bool((below < up_to).any())
        self.first, self.last = np.searchsorted(few, few, "left"), np.searchsorted(few, few, "right")
        if len(few) * len(many) > MOST_PAIRS:
            self._ranks, self._pairs = (ordered, below, up_to), None
        else:
            beaten, ties = few[:, None] > many, few[:, None] == many
            self._pairs = beaten.astype(np.float32), ties.astype(np.float32)

    def over(self, of_group: NDArray[np.float32]) -> tuple[Floats, Floats | float]:
        """Return twice the number of a group's rows ``[n, R]`` (0 or 1) below each of the few (ties: 1), and ties."""
        if self._pairs is None:
            ordered, below, up_to = self._ranks
            counted = np.zeros((len(of_group) + 1, of_group.shape[1]))
            np.cumsum(of_group[ordered], axis=0, out=counted[1:])
            return counted[below] + counted[up_to], counted[up_to] - counted[below] if self.tied else 0.0
        beaten, ties = self._pairs
        won = 2.0 * (beaten @ of_group).astype(np.float64)
        if not self.tied:
            return won, 0.0
        even = (ties @ of_group).astype(np.float64)
        return won + even, even


def _of_groups(wins: _Wins, few: Labels, many: Labels, groups: int) -> tuple[Floats, Floats]:
    """Compute :class:`Figures` for ascending rows of the rarer class, labels ``few [m, r]``, and the ``many``."""
    value = np.full((groups, few.shape[1]), np.nan)
    variance = np.full_like(value, np.nan)
    for g in range(groups):
        mine = (few == g).astype(np.float64)
        of_group = (many == g).astype(np.float32)
        m, n = int(mine[:, 0].sum()), int(of_group[:, 0].sum())
        if not (m and n):
            continue
        won, ties = wins.over(of_group)
        weighted = mine * won
        total, squares = weighted.sum(axis=0), (weighted * won).sum(axis=0)
        value[g] = total / (2.0 * m * n)
        variance[g] = _spread(total, squares, m, n) / m
        # The other class's squares are sums over pairs of the few: a row below the lower of two is below both.
        counted = np.zeros((len(mine) + 1, mine.shape[1]))
        np.cumsum(mine, axis=0, out=counted[1:])
        above, alike = counted[-1] - counted[wins.last], counted[wins.last] - counted[wins.first]
        other_squares = (mine * (4.0 * won * above + (2.0 * won - ties) * alike)).sum(axis=0)
        variance[g] += _spread(total, other_squares, n, m) / n
    return value, variance


def _spread(total: Floats, squares: Floats, rows: int, others: int) -> Floats:
    """Return the sample variance of placements from their doubled sums over ``rows`` against ``others``."""
    if rows == 1:
        return np.full(len(total), ONE_ROW)
    return np.asarray((squares - total * total / rows) / ((rows - 1) * 4.0 * others * others))


def averaged(errors: ArrayLike, labels: Labels, groups: int) -> tuple[Figures, int]:
    """Compute the mean of ``errors [n]`` (finite, at least 0) of each group of one hospital, its variance, and a scale.

    ``labels [n, R]`` are as in :func:`ranked`. Figures are in units of 2 to the power of the hospital's own scale, in
    which no error exceeds 1. Errors are rounded to a millionth of it, more coarsely beyond 4,096 rows. A group with one
    row has the variance of all rows.
    """
    every = np.asarray(errors, dtype=np.float64)
    scale = int(np.frexp(every.max(initial=0.0))[1])
    digits = min(20, (52 - len(every).bit_length()) // 2)
    units = np.rint(np.ldexp(every, digits - scale))
    both = np.stack([units, units * units])
    value = np.full((groups, labels.shape[1]), np.nan)
    variance = np.full_like(value, np.nan)
    together = float(_variance(units.sum(), units @ units, len(units)))
    for g in range(groups):
        mine = (labels == g).astype(np.float64)
        n = int(mine[:, 0].sum())
        if n:
            total, squares = both @ mine
            value[g] = np.ldexp(total / n, -digits)
            variance[g] = np.ldexp((_variance(total, squares, n) if n > 1 else together) / n, -2 * digits)
    return Figures(value, variance), scale


def _variance(total: Any, squares: Any, n: int) -> Any:
    return np.maximum(squares - total * total / n, 0.0) / max(n - 1, 1)


def pairs(groups: int) -> list[tuple[int, int]]:
    """Return the pairs of groups, in the order of all arrays of pairs."""
    return list(combinations(range(groups), 2))


def weights(counts: ArrayLike) -> Floats:
    """Return the weight of each pair of groups at each hospital, ``[..., pairs]``, from ``counts [..., G, outcomes]``.

    It is 1 over the sum of the reciprocal counts: the inverse variance up to a constant, independent of scores. 0 if a
    count is 0.
    """
    rows = np.asarray(counts, dtype=np.float64)
    with np.errstate(divide="ignore"):
        inverse = (1.0 / rows).sum(axis=-1)
    total = [inverse[..., a] + inverse[..., b] for a, b in pairs(rows.shape[-2])]
    return np.stack([1.0 / each for each in total], axis=-1) if total else np.empty((*rows.shape[:-2], 0))


def contribution(figures: Figures, weight: Floats) -> NDArray[np.int64]:
    """Return one hospital's part of the sums over hospitals, ``[2, pairs, R]`` whole numbers; ``weight [pairs]``.

    For each pair these are the weighted difference, first less second, and the squared weight times its variance.
    """
    units = np.zeros((2, len(weight), figures.value.shape[1]), dtype=np.int64)
    for k, (a, b) in enumerate(pairs(len(figures.value))):
        if weight[k] > 0:
            w = float(weight[k])
            units[0, k] = _whole(w * (figures.value[a] - figures.value[b]))
            units[1, k] = _whole(w * (w * (figures.variance[a] + figures.variance[b])))
    return units


def _whole(values: Floats) -> NDArray[np.int64]:
    return np.rint(np.ldexp(values, FRACTION_BITS)).astype(np.int64)
