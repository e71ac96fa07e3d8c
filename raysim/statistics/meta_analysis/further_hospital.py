"""A figure over hospitals that took no part, and what a further one of them may see."""

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
"""The largest standard deviation that is tried of logarithms, intercepts and slopes."""


class Pooled(NamedTuple):
    """A figure over hospitals that took no part."""

    estimate: float
    low: float
    high: float
    tau: float
    next_low: float
    next_high: float
    hospitals: int


def pooled(y: Floats, v: Floats, widest: float = WIDEST) -> Pooled:
    """The mean of figures ``y [H]`` with variances ``v [H]`` (Hartung and Knapp), their spread (Paule and Mandel), and
    where that of a further hospital lies, every spread up to ``widest`` counting as far as the data support it.
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
