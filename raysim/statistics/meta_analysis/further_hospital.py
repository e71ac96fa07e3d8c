"""A figure over unseen hospitals, and its prediction interval for a further one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raysim.statistics.levels import Z
from raysim.statistics.meta_analysis.between_hospitals import FEWEST, FEWEST_TO_PREDICT
from raysim.statistics.meta_analysis.shrinkage import WIDEST, posterior
from raysim.statistics.meta_analysis.spread import hartung_knapp, paule_mandel

Floats = NDArray[np.float64]

BEYOND = 4.0
"""Largest standard deviation of logarithms, intercepts and slopes in the grid."""


class Pooled(NamedTuple):
    """A figure over unseen hospitals."""

    estimate: float
    low: float
    high: float
    tau: float
    next_low: float
    next_high: float
    hospitals: int


def pooled(y: Floats, v: Floats, widest: float = WIDEST) -> Pooled:
    """Compute mean, spread and prediction interval of figures ``y [H]`` with variances ``v [H]``.

    The mean's interval is Hartung and Knapp's, the spread Paule and Mandel's. The prediction interval of a further
    hospital averages over the posterior of the spread up to ``widest``.
    """
    defined = np.isfinite(y) & np.isfinite(v) & (v > 0)
    y, v = y[defined], v[defined]
    if len(y) < FEWEST:
        nan = float("nan")
        return Pooled(nan, nan, nan, nan, nan, nan, len(y))
    spread = paule_mandel(y, v)
    mean = hartung_knapp(y, v, spread)
    further = posterior(y, v, widest)
    reach = Z * further.further_sd if len(y) >= FEWEST_TO_PREDICT else float("nan")
    middle = further.further_mean
    return Pooled(mean.estimate, mean.low, mean.high, spread**0.5, middle - reach, middle + reach, len(y))
