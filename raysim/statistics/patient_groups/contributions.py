"""One hospital's contribution to the comparison of groups, for each arrangement of group labels. It is computed from
each group's figure (AUROC or mean absolute error) at the hospital, and from the figure's variance.

Only whole numbers that floats represent exactly are added, so that the order of addition does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.core.arrays import Floats
from raysim.statistics.patient_groups.arrangements import Labels

ONE_ROW = 1.0 / 12.0
"""The variance of placements (see :func:`_spread`) that is assumed for a class with one row. Placements of
uninformative scores are uniform between 0 and 1, and therefore have this variance."""

BLOCK = 1 << 23
"""Largest number of group labels (rows times arrangements) processed at once."""

FRACTION_BITS = 36
"""Contributions of hospitals are rounded to multiples of 2^-36 and added as integers, so that the sum does not depend
on the order of hospitals."""


class Figures(NamedTuple):
    """The figure (AUROC or mean absolute error) of each group of patients at one hospital, and the figure's variance.
    Both have the shape ``[G, R]``, for ``G`` groups and ``R`` arrangements of group labels. They are NaN for a group
    without rows and, for AUROC, for a group with rows of one class only.
    """

    value: Floats
    variance: Floats


def ranked(scores: ArrayLike, event: ArrayLike, labels: tuple[Labels, Labels], groups: int) -> Figures:
    """Compute the AUROC of each of ``groups`` groups of patients at one hospital, from the group's own rows, and the
    variance of this AUROC by DeLong's method.

    ``scores [n]`` and ``event [n]`` belong to the rows with a known group. ``labels`` has ``R`` permutations of the
    group labels: an array ``[m, R]`` for the ``m`` events and an array ``[n - m, R]`` for the other rows, both in the
    order of rows. If a group has only one row of a class, :data:`ONE_ROW` replaces the sample variance of this class's
    placements.
    """
    z, positive = np.asarray(scores), np.asarray(event, dtype=bool)
    few, many, (few_labels, many_labels) = z[positive], z[~positive], labels
    if len(few) > len(many):  # the AUROC of the opposite scores for the opposite event is the same
        few, many, few_labels, many_labels = -many, -few, many_labels, few_labels
    order = np.argsort(few, kind="stable")
    few, few_labels = few[order], few_labels[order]
    value = np.full((groups, few_labels.shape[1]), np.nan)
    variance = np.full_like(value, np.nan)
    ascending = np.argsort(many, kind="stable")
    wins, many_labels = _Wins(few, many[ascending]), many_labels[ascending]
    at_once = max(1, BLOCK // max(len(z), 1))
    for first in range(0, value.shape[1], at_once):
        some = slice(first, first + at_once)
        value[:, some], variance[:, some] = _of_groups(wins, few_labels[:, some], many_labels[:, some], groups)
    return Figures(value, variance)


class _Wins:
    """Counts for each score in ``few [m]`` how many scores in ``many [n]`` are lower, separately by group of patients.
    Both arrays are ascending.
    """

    def __init__(self, few: NDArray[Any], many: NDArray[Any]) -> None:
        below, up_to = (np.searchsorted(many, few, side) for side in ("left", "right"))
        edges = np.unique(np.concatenate([[0], below, up_to]))
        self._slices = list(pairwise(edges.tolist()))
        self._below, self._up_to = (np.searchsorted(edges, each) for each in (below, up_to))
        self.tied = bool((below < up_to).any())
        """Whether any score of ``few`` equals a score of ``many``."""
        self.first, self.last = (np.searchsorted(few, few, side) for side in ("left", "right"))
        self.repeated = bool((self.last - self.first > 1).any())
        """Whether two scores of ``few`` are equal."""

    def over(self, of_group: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Count how many scores of one group in ``many`` are below each score in ``few``.

        ``of_group [n, R]`` marks the group's scores under each of ``R`` arrangements of group labels. Returns two
        arrays ``[m, R]``: twice the number of lower scores plus the number of ties, and the number of ties alone.
        """
        kind = np.min_scalar_type(2 * len(of_group))  # small numbers are added many at a time
        rows = of_group.astype(kind, copy=False)
        counted = _running([rows[a:b].sum(axis=0, dtype=kind) for a, b in self._slices], rows.shape[1], kind)
        below, up_to = counted[self._below], counted[self._up_to]
        return below + up_to, up_to - below


def _running(rows: Sequence[NDArray[Any]] | NDArray[Any], width: int, kind: np.dtype[Any]) -> NDArray[Any]:
    """Return the running sums ``[m + 1, R]`` of ``rows [m, R]`` over the first axis, beginning with 0."""
    sums = np.zeros((len(rows) + 1, width), kind)
    for i, row in enumerate(rows):  # three times as fast as numpy's running sums along this axis
        np.add(sums[i], row, sums[i + 1])
    return sums


def _of_groups(wins: _Wins, few: Labels, many: Labels, groups: int) -> tuple[Floats, Floats]:
    """Compute each group's AUROC, and the variance of this AUROC, under ``r`` arrangements of group labels: two arrays
    ``[groups, r]``.

    ``few [m, r]`` are the group labels of the rarer class's rows, and ``many`` those of the other class's rows. Rows
    are in ascending order of scores.
    """
    value = np.full((groups, few.shape[1]), np.nan)
    variance = np.full_like(value, np.nan)
    # No sum below exceeds 16 times this product; single precision, twice as fast, is exact for whole numbers to 2^24.
    exact = np.float32 if len(few) * len(many) ** 2 <= 1 << 20 else np.float64
    for g in range(groups):
        mine, of_group = few == g, many == g
        m, n = int(np.count_nonzero(mine[:, 0])), int(np.count_nonzero(of_group[:, 0]))
        if not (m and n):
            continue
        won, ties = wins.over(of_group)
        weighted = np.multiply(won, mine, dtype=exact)
        total, squares = weighted.sum(axis=0).astype(np.float64), _added(weighted, weighted)
        value[g] = total / (2.0 * m * n)
        variance[g] = _spread(total, squares, m, n) / m
        # The other class's squares are sums over pairs of the few, since a row below the lower of two is below both.
        counted = _running(mine, mine.shape[1], np.min_scalar_type(len(mine)))
        other_squares = 4.0 * _added(weighted, (counted[-1] - counted[wins.last]).astype(exact))
        even = 2 * weighted - np.multiply(ties, mine, dtype=exact) if wins.tied else 2 * weighted
        if wins.repeated:
            other_squares += _added(even, (counted[wins.last] - counted[wins.first]).astype(exact))
        else:
            other_squares += even.sum(axis=0)
        variance[g] += _spread(total, other_squares, n, m) / n
    return value, variance


def _added(a: NDArray[Any], b: NDArray[Any]) -> Floats:
    return np.asarray(np.einsum("ij,ij->j", a, b).astype(np.float64))


def _spread(total: Floats, squares: Floats, rows: int, others: int) -> Floats:
    """Return the sample variance of the placements of ``rows`` rows of one class; :data:`ONE_ROW` for one row. A row's
    placement is the share of the ``others`` rows of the other class against which it is ranked correctly.

    Each row's placement is multiplied by ``2 * others``. ``total`` is the sum of these products over the rows, and
    ``squares`` is the sum of their squares.
    """
    if rows == 1:
        return np.full(len(total), ONE_ROW)
    return np.asarray((squares - total * total / rows) / ((rows - 1) * 4.0 * others * others))


def averaged(errors: ArrayLike, labels: Labels, groups: int) -> tuple[Figures, int]:
    """Compute for each group of patients at one hospital the mean of the group's errors and the variance of this mean.
    Returns these figures and an integer, ``scale``.

    ``errors [n]`` are finite and at least 0; ``labels [n, R]`` are the groups of rows under each of ``R`` arrangements.
    Means are in units of ``2 ** scale``, so that no error exceeds one unit. Variances are in the square of this unit.
    Errors are rounded to a millionth of this unit, or more coarsely if there are 4,096 rows or more. For a group with
    one row, the variance of the errors of all rows is used.
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
    """Return all pairs of indices of ``groups`` groups."""
    return list(combinations(range(groups), 2))


def weights(counts: ArrayLike) -> Floats:
    """Return the weight of each pair of groups at each hospital, ``[..., pairs]``. ``counts [..., G, outcomes]`` are
    the numbers of rows of each group and outcome.

    The weight is 1 over the sum of the reciprocal counts of both groups and all outcomes. It is 0 if one of these
    counts is 0.
    """
    rows = np.asarray(counts, dtype=np.float64)
    with np.errstate(divide="ignore"):
        inverse = (1.0 / rows).sum(axis=-1)
    total = [inverse[..., a] + inverse[..., b] for a, b in pairs(rows.shape[-2])]
    return np.stack([1.0 / each for each in total], axis=-1) if total else np.empty((*rows.shape[:-2], 0))


def contribution(figures: Figures, weight: Floats) -> NDArray[np.int64]:
    """Return what one hospital adds to the sums over hospitals, an array ``[2, pairs, R]`` of integers in units of
    ``2^-36``, for ``R`` arrangements of group labels.

    For each pair of groups there are two numbers: the weighted difference (first group minus second), and the variance
    of the difference times the squared weight. ``weight [pairs]`` are the weights of the pairs at the hospital.
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
