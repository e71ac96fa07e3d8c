"""The best split of each node of a level, from its histogram.

A split of a node with sums G and H over rows into two sides gains ``GL^2/(HL + l2) + GR^2/(HR + l2) - G^2/(H + l2)``.
It is made if half of that exceeds ``gamma`` and both sides have ``min_rows`` rows. Further rules:

- Rows with a missing value go to the side with the larger gain. In a node without such rows, missing values will go to
  the side with more rows, and left if both have as many.
- "Missing against the rest" is a split too: all values left, the missing right.
- Categories are sorted by ``G/(H + l2)`` (if equal, by their codes), and each prefix may go left, which is optimal for
  this gain (W. Fisher 1958). Categories without rows in the node go where missing values go.
- Of equal gains (to 1e-12 of them) the first column, then the first bin, then missing-left is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysim.trees.binning import Bins
from raysim.trees.edges import Floats, Ints
from raysim.trees.losses import GRID
from raysim.trees.settings import TreeSettings

ALIKE = 1e-12
"""Relative difference below which two gains count as equal."""


@dataclass(frozen=True, eq=False)
class Split:
    """The split of a node: which of the column's bins go left, the missing bin last."""

    column: int
    bin: int
    """For numbers, the last bin that goes left. For categories, the number of categories that go left, minus 1."""
    missing_left: bool
    left: NDArray[np.bool_]
    """Whether each bin goes left, ``[bins + 1]``."""
    gain: float
    sums: Floats
    """The sums of the left and the right side: ``[2, 3]`` whole numbers."""


def best_splits(
    histograms: Floats, totals: Floats, bins: Bins, settings: TreeSettings, columns: NDArray[np.bool_] | None = None
) -> list[Split | None]:
    """Return the best split of each of ``m`` nodes; None for a node that should not be split.

    ``histograms [m, W, 3]``: the nodes' sums by bin. ``totals [m, 3]``: the nodes' sums over all their rows.
    ``columns [F]``: the columns that splits may use; None: all.
    """
    units = np.array([1 / GRID, 1 / GRID, 1.0])
    values, missing = _padded(histograms * units, bins)
    order = _ordered_levels(values, bins, settings.l2)
    if order is not None:
        values = np.take_along_axis(values, order[None], axis=3)
    whole = (totals * units).T[:, :, None, None]
    # Sums of the left side, [3, m, F, B], with missing rows on the right; below, with missing rows on the left.
    low = np.cumsum(values, axis=3)
    gains = _gains(low, whole, settings)
    some = (missing[2] > 0).any(axis=0)
    with_missing = gains.copy()
    if some.any():
        with_missing[:, some] = _gains(low[:, :, some] + missing[:, :, some, None], whole, settings)
    by_side = np.stack([with_missing, gains])
    by_side[~_allowed(values[2], missing[2], low[2], totals[:, 2], bins, columns)] = -np.inf
    m, F, B = low.shape[1:]
    either = by_side.max(axis=0).reshape(m, F * B)
    most = either.max(axis=1, initial=-np.inf)
    found: list[Split | None] = []
    for node in range(m):
        if not (most[node] > 0 and most[node] / 2 > settings.gamma):
            found.append(None)
            continue
        least = most[node] * (1 - ALIKE)
        column, bin = divmod(int(np.argmax(either[node] >= least)), B)
        to_right = int(by_side[0, node, column, bin] < least)
        levels = None if order is None or not bins.levels[column] else order[node, column]
        goes = _goes_left(bins, column, bin, not to_right, levels, values[2, node, column])
        left = (low[:, node, column, bin] + (0 if to_right else missing[:, node, column])) / units
        gain = float(by_side[to_right, node, column, bin])
        found.append(Split(column, bin, not to_right, goes, gain, np.stack([left, totals[node] - left])))
    return found


def _padded(sums: Floats, bins: Bins) -> tuple[Floats, Floats]:
    """Return sums by column and bin ``[3, m, F, B]``, and sums of missing values ``[3, m, F]``.

    Sums beyond a column's bins are 0.
    """
    B = int(bins.sizes.max())
    inside = np.arange(B) < bins.sizes[:, None]
    at = np.where(inside, bins.first[:, None] + np.arange(B), 0)
    apart = np.ascontiguousarray(np.moveaxis(sums, 2, 0))
    values = apart[:, :, at]
    if not inside.all():
        values *= inside
    return values, apart[:, :, bins.first + bins.sizes]


def _ordered_levels(values: Floats, bins: Bins, l2: float) -> Ints | None:
    """Return the order of the bins of each column and node, ``[m, F, B]``; None if all columns are numbers."""
    if not any(bins.levels):
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = values[0] / (values[1] + l2)
    ratio[values[2] == 0] = np.inf
    ratio[:, np.array(bins.levels) == 0] = 0.0
    return np.argsort(ratio, axis=2, kind="stable")


def _score(G: Floats, H: Floats, l2: float) -> Floats:
    """Return ``G^2/(H + l2)``; 0 without rows."""
    H = H + l2
    if l2 > 0:
        return G * G / H
    return np.divide(G * G, H, out=np.zeros_like(G), where=H > 0)


def _gains(left: Floats, whole: Floats, settings: TreeSettings) -> Floats:
    """Return the gain of each candidate ``[m, F, B]``; minus infinity if a side has too few rows.

    ``left [3, m, F, B]`` are the sums of the left sides, ``whole [3, m, 1, 1]`` the sums of the nodes.
    """
    right = whole - left
    children = _score(left[0], left[1], settings.l2) + _score(right[0], right[1], settings.l2)
    gains: Floats = children - _score(whole[0], whole[1], settings.l2)
    # If the children equal their parent, the remaining gain is rounding error.
    gains[(gains <= ALIKE * children) | (np.minimum(left[2], right[2]) < settings.min_rows)] = -np.inf
    return gains


def _allowed(
    values: Floats, missing: Floats, low: Floats, whole: Floats, bins: Bins, columns: NDArray[np.bool_] | None
) -> NDArray[np.bool_]:
    """Return which candidates are valid splits, with missing rows left and right, ``[2, m, F, B]``.

    All arguments are counts of rows: ``values`` and ``low [m, F, B]``, ``missing [m, F]``, ``whole [m]``.
    """
    has_missing = missing[:, :, None] > 0
    # The last candidate of a column leaves no value on the right.
    last = np.broadcast_to(bins.sizes, missing.shape) - 1
    if any(bins.levels):
        last = np.where(np.array(bins.levels) > 0, (values > 0).sum(axis=2) - 1, last)
    at = np.arange(low.shape[2])
    # Only the last candidate is "missing against the rest": all others have values on both sides.
    before = (at < last[:, :, None]) & (low > 0) & (low < low[:, :, -1:])
    # Without missing rows both directions are equal: later missing values go to the side with more rows, left if
    # equal.
    larger_left = low >= whole[:, None, None] - low
    allowed = np.stack([before & (has_missing | larger_left), before & (has_missing | ~larger_left)])
    if has_missing.any():
        allowed[1] |= (at == last[:, :, None]) & has_missing
    if columns is not None:
        allowed &= columns[:, None]
    return allowed


def _goes_left(
    bins: Bins, column: int, bin: int, missing_left: bool, levels: Ints | None, counts: Floats
) -> NDArray[np.bool_]:
    """Return which bins go left, the missing one last. ``levels``: the sorted categories; ``counts``: their rows."""
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
