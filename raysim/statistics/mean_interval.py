"""The interval of one trained model's mean figure over hospitals. It allows for the choice of patients only.

It follows from the intervals of single hospitals, which are independent. Definitions and coverage:
``docs/statistics.md``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from raysim.statistics.differences.paired import Limits


def mean_interval(
    value: ArrayLike, low: ArrayLike, high: ArrayLike, rows: ArrayLike, *, within: tuple[float, float]
) -> Limits:
    """Return the 95 % interval of the mean of ``H`` hospitals' figures ``value [H]``, weighted by ``rows [H]``.
    Hospitals with a NaN figure are left out.

    ``low [H]`` and ``high [H]`` are the limits of each hospital's own 95 % interval; ``within`` is the possible range
    of the figure. The limits are NaN if no hospital defines the figure, or if a hospital has a figure without
    an interval.
    """
    a, below, above, n = (np.asarray(each, dtype=np.float64) for each in (value, low, high, rows))
    judged = np.isfinite(a) & (n > 0)
    if not judged.any():
        return Limits(float("nan"), float("nan"))
    share = n[judged] / n[judged].sum()
    mean = float(share @ a[judged])
    reach = float(np.sqrt(np.sum(np.square(share * (above[judged] - below[judged]) / 2))))
    return Limits(*(float(np.clip(end, *within)) for end in (mean - reach, mean + reach)))
