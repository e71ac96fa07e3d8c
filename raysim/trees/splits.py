"""The best split of each node of a level, from its histogram.

Let G and H be the sums of gradients and of second derivatives over a node's rows. A split divides them into GL and HL
on the left side, and GR and HR on the right side. The gain of a split is ``GL^2/(HL + l2) + GR^2/(HR + l2) - G^2/(H +
l2)``. The node is split if half of the gain exceeds ``gamma`` and both sides have at least ``min_rows`` rows. Further
rules:

- Rows with a missing value go to the side that gives the larger gain. If no training row of the node has a missing
  value, missing values go to the side with more rows, or left if both sides have equally many.
- "Missing against the rest" is also a split: all values go left, and missing values right.
- Categories are sorted by ``G/(H + l2)`` (if equal, by their codes). Every prefix of this order is a candidate for the
  left side. If ``l2`` is 0 and ``min_rows`` is 1, no other set of categories has a larger gain than the best prefix (W.
  Fisher 1958). If ``l2`` is above 0, another set can have a larger gain. Categories without rows go to the side of
  missing values.
- If gains are equal (up to a relative difference of 1e-12), the first column is preferred, then the first bin, then the
  split that sends missing values left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats, Ints
from raysim.trees.binning import Bins
from raysim.trees.losses import GRID
from raysim.trees.settings import TreeSettings

ALIKE = 1e-12
"""The relative difference below which two gains are treated as equal."""


@dataclass(frozen=True, eq=False)
class Split:
    """The split of a node by one column."""

    column: int
    bin: int
    """For a column of numbers, the last bin that goes left. For a column of categories, the number of categories with
    rows in the node that go left, minus 1."""
    missing_left: bool
    left: NDArray[np.bool_]
    """Whether each bin goes left, ``[bins + 1]``; the last entry is for missing values."""
    gain: float
    sums: Floats
    """Three sums over the rows of the left side and of the right side, ``[2, 3]``: gradients, second derivatives (both
    in units of ``2^-30``), and the number of rows."""


def best_splits(
    histograms: Floats, totals: Floats, bins: Bins, settings: TreeSettings, columns: NDArray[np.bool_] | None = None
) -> list[Split | None]:
    """Return the best split of each of ``m`` nodes; None for a node that should not be split.

    ``histograms [m, W, 3]`` are the sums over the rows in each of ``W`` bins, and ``totals [m, 3]`` the sums over all
    rows of each node. ``columns [F]`` marks the columns that splits may use; None means all.
    """
    units = np.array([1 / GRID, 1 / GRID, 1.0])
    values, missing = _padded(histograms, units, bins)
    order = _ordered_levels(values, bins, settings.l2)
    if order is not None:
        values = np.take_along_axis(values, order[None], axis=2)
    whole = (totals * units).T
    # Sums of the left side, [3, m, B, F], with missing rows on the right.
    low = _accumulated(values)
    gains = _gains(low, whole[:, :, None, None], settings)
    # Where a node has missing rows in a column, both sides are tried for them. Elsewhere both are equal, and a split
    # that leaves a side without values has too few rows.
    at, of = np.nonzero(missing[2])
    pairs = {pair: j for j, pair in enumerate(zip(at.tolist(), of.tolist(), strict=True))}
    sides = np.moveaxis(low[:, at, :, of], 0, 1)
    two = _two_sided(sides, missing[:, at, of], whole[:, at], values[2, at, :, of], bins, of, settings)
    gains[at, :, of] = two.max(axis=0)
    if columns is not None:
        gains[:, :, ~columns] = -np.inf
    m, B, F = gains.shape
    either = gains.transpose(0, 2, 1).reshape(m, F * B)
    most = [float(each[each.argmax()]) if F * B else -np.inf for each in either]
    found: list[Split | None] = []
    for node in range(m):
        if not (most[node] > 0 and most[node] / 2 > settings.gamma):
            found.append(None)
            continue
        least = most[node] * (1 - ALIKE)
        column, bin = divmod(int(np.argmax(either[node] >= least)), B)
        left, pair = low[:, node, bin, column], pairs.get((node, column))
        if pair is None:
            # Later missing values go to the side with more rows, left if equal.
            missing_left = bool(left[2] >= whole[2, node] - left[2])
            gain = float(either[node, column * B + bin])
        else:
            missing_left = bool(two[0, pair, bin] >= least)
            gain = float(two[0 if missing_left else 1, pair, bin])
        if missing_left:
            left = left + missing[:, node, column]
        levels = None if order is None or not bins.levels[column] else order[node, :, column]
        goes = _goes_left(bins, column, bin, missing_left, levels, values[2, node, :, column])
        sums = np.stack([left / units, totals[node] - left / units])
        found.append(Split(column, bin, missing_left, goes, gain, sums))
    return found


def _padded(sums: Floats, units: Floats, bins: Bins) -> tuple[Floats, Floats]:
    """Return histograms ``sums [m, W, 3]``, multiplied by ``units [3]``, in the shape ``[3, m, B, F]``, and the sums
    over rows with missing values, ``[3, m, F]``.

    ``B`` is the largest number of bins of a column; entries beyond a column's bins are 0.
    """
    at = np.arange(int(bins.sizes.max()))[:, None]
    inside = at < bins.sizes
    apart = sums.transpose(2, 0, 1) * units[:, None, None]
    values = apart.take(np.where(inside, bins.first + at, 0), axis=2)
    if not inside.all():
        values *= inside
    return values, apart.take(bins.first + bins.sizes, axis=2)


def _accumulated(values: Floats) -> Floats:
    """Return cumulative sums of ``values [3, m, B, F]`` over the ``B`` bins, six times faster than ``np.cumsum``."""
    made = np.empty_like(values)
    made[:, :, 0] = values[:, :, 0]
    for bin in range(1, values.shape[2]):
        np.add(made[:, :, bin - 1], values[:, :, bin], out=made[:, :, bin])
    return made


def _ordered_levels(values: Floats, bins: Bins, l2: float) -> Ints | None:
    """Return the order of bins by ``G/(H + l2)`` (see the module) in each node and column, ``[m, B, F]``.

    Bins of numbers keep their order. The result is None if no column has categories.
    """
    if not any(bins.levels):
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = values[0] / (values[1] + l2)
    ratio[values[2] == 0] = np.inf
    ratio[:, :, np.array(bins.levels) == 0] = 0.0
    return np.argsort(ratio, axis=1, kind="stable")


def _score(G: Floats, H: Floats, l2: float) -> Floats:
    H = H + l2
    if l2 > 0:
        return G * G / H
    return np.divide(G * G, H, out=np.zeros_like(G), where=H > 0)


def _gains(left: Floats, whole: Floats, settings: TreeSettings) -> Floats:
    """Return the gain of each candidate split; minus infinity for a split that is not allowed."""
    right = whole - left
    children = _score(left[0], left[1], settings.l2)
    children += _score(right[0], right[1], settings.l2)
    gains: Floats = children - _score(whole[0], whole[1], settings.l2)
    # If the children equal their parent, the remaining gain is rounding error.
    children *= ALIKE
    np.copyto(gains, -np.inf, where=(gains <= children) | (np.minimum(left[2], right[2]) < settings.min_rows))
    return gains


def _two_sided(
    low: Floats, missing: Floats, whole: Floats, counts: Floats, bins: Bins, of: Ints, settings: TreeSettings
) -> Floats:
    """Return the gains of candidate splits with missing values on the left and on the right, ``[2, K, B]``.

    There are ``K`` pairs of a node and a column with missing values, with ``B`` candidates each.

    - ``low [3, K, B]``: sums over the left side of each candidate, without missing values.
    - ``missing`` and ``whole [3, K]``: sums over the rows with missing values, and over all rows of the node.
    - ``counts [K, B]``: the number of rows in each candidate's bin. ``of [K]``: the column of each pair.
    """
    gains = np.stack(
        [_gains(low + missing[:, :, None], whole[:, :, None], settings), _gains(low, whole[:, :, None], settings)]
    )
    # The last candidate of a column leaves no value on the right.
    last = bins.sizes[of] - 1
    if any(bins.levels):
        last = np.where(np.array(bins.levels)[of] > 0, (counts > 0).sum(axis=1) - 1, last)
    at = np.arange(low.shape[2])
    # Only the last candidate is "missing against the rest": all others have values on both sides.
    before = (at < last[:, None]) & (low[2] > 0) & (low[2] < low[2, :, -1:])
    gains[0, ~before] = -np.inf
    gains[1, ~(before | (at == last[:, None]))] = -np.inf
    return gains


def _goes_left(
    bins: Bins, column: int, bin: int, missing_left: bool, levels: Ints | None, counts: Floats
) -> NDArray[np.bool_]:
    """Return a mask of the column's bins that go left; the bin of missing values is last.

    ``levels`` are the categories in the order of :func:`_ordered_levels` (None: a column of numbers), and ``counts``
    the number of rows of each.
    """
    size = int(bins.sizes[column])
    goes = np.zeros(size + 1, np.bool_)
    goes[size] = missing_left
    if levels is None:
        goes[: bin + 1] = True
        return goes
    levels, counts = levels[levels < size], counts[levels < size]
    goes[levels[: bin + 1]] = True
    goes[levels[counts == 0]] = missing_left
    return goes
