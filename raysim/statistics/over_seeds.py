"""One hospital's figure over several training seeds, with an interval for other patients and other seeds.

Seeds test many of the same patients, and nobody tells the server which. The patients' part of the interval is therefore
as wide as if all seeds had tested the same ones: the mean reach of the seeds' own intervals. That part and the seeds'
are squared and added, each with the quantile of its own degrees of freedom, as for the mean of all hospitals
(:meth:`raysim.statistics.differences.paired.Paired.fixed`). Definitions: ``docs/statistics.md``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from raysim.statistics.levels import ALPHA

Floats = NDArray[np.float64]


class OverSeeds(NamedTuple):
    """``value, low, high [...]``: the mean of the seeds that define a figure, with its interval; ``seeds``: how many.

    NaN where no seed defines the figure, or none has an interval of it.
    """

    value: Floats
    low: Floats
    high: Floats
    seeds: NDArray[np.int64]


def over_seeds(
    value: ArrayLike, low: ArrayLike, high: ArrayLike, *, within: tuple[ArrayLike, ArrayLike] = (-np.inf, np.inf)
) -> OverSeeds:
    """The mean of ``value [S, ...]`` over seeds; ``low`` and ``high`` are each seed's 95 % interval over patients.

    A figure that one seed defines keeps that seed's interval, which says nothing of other seeds. Limits are cut to what
    the figure can be, ``within``, two numbers or two ``[...]``.
    """
    v, lower, upper = (np.asarray(each, dtype=np.float64) for each in (value, low, high))
    defined = np.isfinite(v)
    seeds = defined.sum(axis=0)
    mean = _mean(v, defined)
    limited = defined & np.isfinite(lower) & np.isfinite(upper)
    below, above = _mean(v - lower, limited), _mean(upper - v, limited)
    degrees = np.maximum(seeds - 1, 1)
    with np.errstate(over="ignore"):  # of a model that has diverged: a limit is then infinite
        squares = np.square(np.where(defined, v - mean, 0.0)).sum(axis=0)
        variance = squares / degrees / (degrees + 1)
        of_seeds = np.where(seeds > 1, np.square(stdtrit(degrees, ALPHA / 2)) * variance, 0.0)
        low_end, high_end = mean - np.sqrt(np.square(below) + of_seeds), mean + np.sqrt(np.square(above) + of_seeds)
    return OverSeeds(mean, np.clip(low_end, *within), np.clip(high_end, *within), seeds)


def _mean(values: Floats, defined: NDArray[np.bool_]) -> Floats:
    """The mean over the first axis of ``defined`` values; NaN where there are none."""
    count = defined.sum(axis=0)
    total = np.where(defined, values, 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
