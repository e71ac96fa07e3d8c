"""A hospital's metric over several training seeds, with an interval that allows for the choice of patients and seeds.

The runs of two seeds share many test patients, and the server does not know which ones. The interval is therefore as
wide as if all seeds had tested the same patients. Definitions: ``docs/statistics.md``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.core.arrays import Floats
from raysim.core.levels import ALPHA
from raysim.statistics.intervals import stdtrit


class OverSeeds(NamedTuple):
    """The mean ``value`` of a figure over training seeds, its interval ``low`` to ``high``, and the number of ``seeds``
    that define the figure.

    ``value`` is NaN if no seed defines the figure. ``low`` and ``high`` are NaN if no seed has an interval.
    """

    value: Floats
    low: Floats
    high: Floats
    seeds: NDArray[np.int64]


def over_seeds(
    value: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    within: tuple[ArrayLike, ArrayLike] = (-np.inf, np.inf),
    ratio: ArrayLike = False,
) -> OverSeeds:
    """Return the mean of the figures ``value [S, ...]`` over ``S`` training seeds, with its 95 % interval.

    ``low`` and ``high`` are the limits of each seed's own 95 % interval. If only one seed defines the figure, the
    result is the interval of this seed, which does not cover differences between seeds. Limits are clipped to the
    possible range ``within``: two numbers, or two arrays ``[...]``.

    Where ``ratio`` (``[...]``, or one value for all) is True, the distances of the limits from the mean are computed on
    the log scale, unless a seed's lower limit is 0.
    """
    v, lower, upper = (np.asarray(each, dtype=np.float64) for each in (value, low, high))
    defined = np.isfinite(v)
    seeds = defined.sum(axis=0)
    mean = mean_of(v, defined)
    limited = defined & np.isfinite(lower) & np.isfinite(upper)
    below, above = mean_of(v - lower, limited), mean_of(upper - v, limited)
    with np.errstate(over="ignore"):  # a model that has diverged has infinite limits
        of_seeds = squared_reach(v, mean, defined)
        low_end, high_end = mean - np.sqrt(np.square(below) + of_seeds), mean + np.sqrt(np.square(above) + of_seeds)
    if np.any(ratio):
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            logs = over_seeds(*map(np.log, (v, lower, upper)))
            factors = np.exp(logs.low - logs.value), np.exp(logs.high - logs.value)
        # One seed keeps its own limits to the last bit.
        by_log = np.asarray(ratio) & (seeds > 1) & ~(lower <= 0).any(axis=0)
        low_end, high_end = (
            np.where(by_log, mean * f, end) for f, end in zip(factors, (low_end, high_end), strict=True)
        )
    return OverSeeds(mean, np.clip(low_end, *within), np.clip(high_end, *within), seeds)


def squared_reach(values: Floats, mean: Floats, defined: NDArray[np.bool_]) -> Floats:
    """Return the part of the squared half-width of a mean's 95 % interval that is due to differences between seeds. It
    is 0 for fewer than two ``defined`` values.
    """
    seeds = defined.sum(axis=0)
    degrees = np.maximum(seeds - 1, 1)
    squares = np.square(np.where(defined, values - mean, 0.0)).sum(axis=0)
    variance = squares / degrees / (degrees + 1)
    return np.where(seeds > 1, np.square(stdtrit(degrees, ALPHA / 2)) * variance, 0.0)


def mean_of(values: Floats, defined: NDArray[np.bool_]) -> Floats:
    """Return the mean over the first axis of the ``values`` that are ``defined``; NaN where none is."""
    count = defined.sum(axis=0)
    total = np.where(defined, values, 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
