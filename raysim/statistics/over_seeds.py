"""One hospital's figure over several training seeds, with an interval for other patients and other seeds.

Seeds share many test patients, and the server does not know which. The patients' part of the interval is therefore as
wide as if all seeds had tested the same patients: it is the mean half-width of the seeds' own intervals. The squares of
the patients' part and of the seeds' part are added, each part with the quantile of its own degrees of freedom. The same
rule applies to the mean of all hospitals (:meth:`raysim.statistics.differences.paired.Paired.fixed`). Definitions:
``docs/statistics.md``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.core.arrays import Floats
from raysim.core.levels import ALPHA
from raysim.statistics.intervals import stdtrit


class OverSeeds(NamedTuple):
    """The mean ``value`` of a figure over the seeds that define it, its interval ``low`` to ``high``, and the number of
    these ``seeds``, all ``[...]``.

    ``value`` is NaN if no seed defines the figure; the limits are NaN also if no seed has an interval.
    """

    value: Floats
    low: Floats
    high: Floats
    seeds: NDArray[np.int64]


def over_seeds(
    value: ArrayLike, low: ArrayLike, high: ArrayLike, *, within: tuple[ArrayLike, ArrayLike] = (-np.inf, np.inf)
) -> OverSeeds:
    """Return the mean of ``value [S, ...]`` over seeds; ``low`` and ``high`` are seeds' 95 % intervals over patients.

    A figure that only one seed defines keeps that seed's interval, which does not cover differences between seeds.
    Limits are cut to the possible range ``within``, two numbers or two ``[...]``.
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
    return OverSeeds(mean, np.clip(low_end, *within), np.clip(high_end, *within), seeds)


def squared_reach(values: Floats, mean: Floats, defined: NDArray[np.bool_]) -> Floats:
    """Return the square of the seeds' part of an interval's half-width, ``[...]``; 0 for under two ``defined`` values.

    ``values [S, ...]`` have the ``mean [...]``.
    """
    seeds = defined.sum(axis=0)
    degrees = np.maximum(seeds - 1, 1)
    squares = np.square(np.where(defined, values - mean, 0.0)).sum(axis=0)
    variance = squares / degrees / (degrees + 1)
    return np.where(seeds > 1, np.square(stdtrit(degrees, ALPHA / 2)) * variance, 0.0)


def mean_of(values: Floats, defined: NDArray[np.bool_]) -> Floats:
    """Return the mean of the ``defined`` values over the first axis; NaN where none is defined."""
    count = defined.sum(axis=0)
    total = np.where(defined, values, 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
