"""The best split of each node of a level, by its histogram.

A split of a node with sums G and H over rows into two sides gains ``GL^2/(HL + l2) + GR^2/(HR + l2) - G^2/(H + l2)``.
It is taken if half of that exceeds ``gamma`` and both sides have ``min_rows`` rows. Rules that decide:

- Rows whose value is missing go left or right, whichever gains more. In a node without such rows, they go to the side
  with more rows, and left if both have as many.
- "Missing against the rest" is a split too: all values left, the missing right.
- Of categories the levels are put in the order of ``G/(H + l2)`` (equal ones in the order of their codes), and each
  prefix may go left, which is best for this gain (W. Fisher 1958). Levels without rows in the node go where missing
  values go.
- Of equal gains (to 1e-12 of them) the first column, then the first bin, then missing-left is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysim.trees.binning import Bins
from raysim.trees.edges import Floats, Ints
from raysim.trees.histograms import CHANNELS
from raysim.trees.losses import GRID
from raysim.trees.settings import TreeSettings

ALIKE = 1e-12
"""Gains that differ by less than this share are equal."""


@dataclass(frozen=True, eq=False)
class Split:
    """The split of a node: which of the column's bins, the missing one last, go left."""

    column: int
    bin: int
    """Of numbers: the last bin that goes left. Of categories: how many levels go left, less 1."""
    missing_left: bool
    left: NDArray[np.bool_]
    """``[bins + 1]``."""
    gain: float
    sums: Floats
    """Of the left side and the right: ``[2, 3]`` whole numbers."""


def best_splits(
    histograms: Floats, totals: Floats, bins: Bins, settings: TreeSettings, columns: NDArray[np.bool_] | None = None
) -> list[Split | None]:
    """The split of each of ``m`` nodes, or None, from ``histograms [m, W, 3]`` and the nodes' sums ``totals [m, 3]``.

    ``columns [F]``: those that may be split by; None: all.
    """
    padded = _padded(histograms, bins)
    values, missing = padded
    order = _ordered_levels(values, bins, settings.l2)
    if order is not None:
        values = np.take_along_axis(values, order[..., None], axis=2)
    m, F, B = values.shape[:3]
    low = np.cumsum(values, axis=2)
    # For each candidate, the left side with missing rows left and right: [m, F, B, 2, 3].
    left = np.stack([low + missing[:, :, None], low], axis=3)
    right = totals[:, None, None, None, :] - left
    gains = _gains(left, right, totals, settings)
    gains[~_allowed(values, missing, low, right, bins, columns)] = -np.inf
    flat = gains.reshape(m, -1)
    most = flat.max(axis=1, initial=-np.inf)
    found: list[Split | None] = []
    for node in range(m):
        if not (most[node] > 0 and most[node] / 2 > settings.gamma):
            found.append(None)
            continue
        place = int(np.argmax(flat[node] >= most[node] * (1 - ALIKE)))
        column, bin, to_right = (int(k) for k in np.unravel_index(place, (F, B, 2)))
        levels = None if order is None or not bins.levels[column] else order[node, column]
        goes = _goes_left(bins, column, bin, not to_right, levels, values[node, column, :, 2])
        sums = np.stack([left[node, column, bin, to_right], right[node, column, bin, to_right]])
        found.append(Split(column, bin, not to_right, goes, float(gains[node, column, bin, to_right]), sums))
    return found


def _padded(histograms: Floats, bins: Bins) -> tuple[Floats, Floats]:
    """Sums by column and bin ``[m, F, B, 3]``, 0 beyond a column's bins, and those of missing values ``[m, F, 3]``."""
    m, B = len(histograms), int(bins.sizes.max())
    inside = np.arange(B) < bins.sizes[:, None]
    at = np.where(inside, bins.first[:, None] + np.arange(B), 0)
    values = histograms[:, at] * inside[None, :, :, None]
    return values.reshape(m, len(bins.sizes), B, CHANNELS), histograms[:, bins.first + bins.sizes]


def _ordered_levels(values: Floats, bins: Bins, l2: float) -> Ints | None:
    """The order of the bins of each column and node, ``[m, F, B]``; None where all columns are numbers."""
    if not any(bins.levels):
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = values[..., 0] / (values[..., 1] + l2 * GRID)
    ratio[values[..., 2] == 0] = np.inf
    ratio[:, np.array(bins.levels) == 0] = 0.0
    return np.argsort(ratio, axis=2, kind="stable")


def _score(sums: Floats, l2: float) -> Floats:
    """``G^2/(H + l2)`` of sums ``[..., 3]``; 0 without rows."""
    G, H = sums[..., 0] / GRID, sums[..., 1] / GRID + l2
    return np.divide(G * G, H, out=np.zeros_like(G), where=H > 0)


def _gains(left: Floats, right: Floats, totals: Floats, settings: TreeSettings) -> Floats:
    children = _score(left, settings.l2) + _score(right, settings.l2)
    gains = children - _score(totals, settings.l2)[:, None, None, None]
    # What is left of children that are as their parent is rounding.
    gains[gains <= ALIKE * children] = -np.inf
    enough = np.minimum(left[..., 2], right[..., 2]) >= settings.min_rows
    return np.where(enough, gains, -np.inf)


def _allowed(
    values: Floats, missing: Floats, low: Floats, right: Floats, bins: Bins, columns: NDArray[np.bool_] | None
) -> NDArray[np.bool_]:
    """Which candidates are splits, ``[m, F, B, 2]``."""
    m, F, B = values.shape[:3]
    has_missing = missing[:, :, None, 2] > 0
    present = (values[..., 2] > 0).sum(axis=2)
    categories = np.array(bins.levels) > 0
    # The last candidate of a column leaves no value on the right.
    last = np.where(categories[None, :], present, bins.sizes[None, :]) - 1
    at = np.arange(B)
    # "Missing against the rest" is the last candidate alone: others have values on both sides.
    both = (low[..., 2] > 0) & (low[..., 2] < low[:, :, -1:, 2])
    before, is_last = (at < last[:, :, None]) & both, at == last[:, :, None]
    # Without missing rows both directions are alike: the larger side by count takes later ones, left if equal.
    larger_left = low[..., 2] >= right[..., 1, 2]
    allowed = np.empty((m, F, B, 2), np.bool_)
    allowed[..., 0] = before & (has_missing | larger_left)
    allowed[..., 1] = (before & (has_missing | ~larger_left)) | (is_last & has_missing)
    if columns is not None:
        allowed &= columns[None, :, None, None]
    return allowed


def _goes_left(
    bins: Bins, column: int, bin: int, missing_left: bool, levels: Ints | None, counts: Floats
) -> NDArray[np.bool_]:
    """Which bins go left, the missing one last; ``levels`` and ``counts``: of categories, in their order."""
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
