"""The slope of gains on the logarithm of size: whether small hospitals gain more from federating.

The noise of a gain grows as a hospital gets smaller, and the variance that is estimated at one hospital is correlated
with its gain. With weights from such variances, the regression would claim a slope too often. Variances are therefore
first replaced by a smooth function of size. Definitions: ``docs/statistics.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import stdtr, stdtrit

from raysim.core.arrays import Floats
from raysim.core.levels import ALPHA
from raysim.statistics.chance.dispersion import SAME_SIZE, TENTH

LEAST_VARIANCE = 1e-6
"""The least variance of a hospital's gain in AUROC: smaller estimates are raised to this number."""


@dataclass(frozen=True)
class GainSlope:
    """The ``slope`` of hospitals' gains in AUROC from federating, per unit of the logarithm of a hospital's number of
    rows. It is negative if small hospitals gain more, and NaN if undefined.

    - ``low`` to ``high``: its 95 % interval by weighted least squares; ``p``: the p-value of no slope.
    - ``robust_p``: the p-value of no slope, from the robust variance HC3.
    """

    slope: float
    low: float
    high: float
    p: float
    robust_p: float

    @property
    def demonstrated(self) -> bool:
        """Whether both p-values are at most .05."""
        return max(self.p, self.robust_p) <= ALPHA

    @property
    def halving(self) -> float:
        """The expected change of the gain if a hospital is half as large."""
        return -self.slope * float(np.log(2.0))


def smoothed_variances(variance: ArrayLike, events: ArrayLike, non_events: ArrayLike, sizes: ArrayLike) -> Floats:
    """Return the variances ``V`` of ``H`` hospitals' gains, smoothed over hospitals, ``[H]``.

    They are ``V = c h exp(alpha + beta ln size)`` with ``h = 1 / events + 1 / non-events``. Alpha and beta come from a
    weighted regression of ``ln (variance / h)`` on ln size; ``variance [H]`` is estimated at each hospital. The weight
    is the number of rows of the rarer class less one. The constant ``c`` makes the weighted mean of ``V / h`` equal to
    that of ``variance / h``. The result is NaN if all weights are 0.
    """
    own, m, n, size = (np.asarray(x, dtype=np.float64) for x in (variance, events, non_events, sizes))
    h, weight = 1 / m + 1 / n, np.minimum(m, n) - 1
    if not weight.any():
        return np.full_like(own, np.nan)
    own = np.maximum(own, LEAST_VARIANCE)
    X = np.column_stack([np.ones_like(size), np.log(size)])
    root = np.sqrt(weight)
    line = np.linalg.lstsq(X * root[:, None], np.log(own / h) * root, rcond=None)[0]
    fitted: Floats = h * np.exp(X @ line)
    scale = float((weight * own / h).sum() / (weight * fitted / h).sum())
    return scale * fitted


def gain_slope(gains: ArrayLike, variance: ArrayLike, sizes: ArrayLike) -> GainSlope:
    """Fit hospitals' ``gains [H]`` on ``ln sizes [H]`` by weighted least squares. ``variance [H]`` is the smoothed
    variance of each gain.

    Hospitals with a NaN are left out. All results are NaN for fewer than ten hospitals, or if all have nearly the same
    size.
    """
    d, v, n = (np.asarray(x, dtype=np.float64) for x in (gains, variance, sizes))
    defined = np.isfinite(d) & np.isfinite(v) & (n > 0)
    d, v, x = d[defined], v[defined], np.log(n[defined])
    if len(d) < TENTH or x.std() < SAME_SIZE:
        return GainSlope(*[float("nan")] * 5)
    df = len(d) - 2

    def excess(tau2: float) -> float:
        _, residuals = _line(d, x, v + tau2)
        return float((residuals**2 / (v + tau2)).sum()) - df

    tau2 = float(brentq(excess, 0.0, d.var() * len(d) + 1e-12)) if excess(0.0) > 0 else 0.0
    w = 1.0 / (v + tau2)
    slope, residuals = _line(d, x, 1.0 / w)
    from_centre = x - w @ x / w.sum()
    spread = float(w @ from_centre**2)
    se = float(np.sqrt(max(1.0, float(w @ residuals**2) / df) / spread))
    leverage = w / w.sum() + w * from_centre**2 / spread
    robust = float(np.sqrt(((w * from_centre * residuals / (1 - leverage)) ** 2).sum())) / spread
    reach = float(-stdtrit(df, ALPHA / 2)) * se
    p, robust_p = 2 * stdtr(df, -abs(slope) / np.array([se, robust]))
    return GainSlope(slope, slope - reach, slope + reach, float(p), float(robust_p))


def _line(d: Floats, x: Floats, v: Floats) -> tuple[float, Floats]:
    w = 1.0 / v
    centre, mean = w @ x / w.sum(), w @ d / w.sum()
    slope = float(w @ ((x - centre) * (d - mean)) / (w @ (x - centre) ** 2))
    return slope, d - mean - slope * (x - centre)
