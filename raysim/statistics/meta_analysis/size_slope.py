"""The slope of AUROC on the logarithm of size, with its interval: whether models are better at larger hospitals.

Hospitals are weighted by the inverse of the sum of two variances: the variance of the hospital's AUROC
(:mod:`raysim.statistics.discrimination.common_curve`), and the variance of true AUROCs between hospitals. A hospital's
own DeLong variance would bias the slope, because this variance is small if the AUROC is high. Definitions:
``docs/statistics.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from raysim.core.levels import LEVEL
from raysim.statistics.chance.dispersion import SAME_SIZE, TENTH

NAN = float("nan")


@dataclass(frozen=True)
class SizeSlope:
    """The ``slope`` of AUROC per unit of the logarithm of a hospital's number of rows, positive if models are better at
    larger hospitals.

    ``se`` is the slope's standard error, ``low`` to ``high`` its 95 % interval, and ``intercept`` the AUROC at a
    hospital with one row. All five are NaN for fewer than ten hospitals, or if all hospitals have nearly the same size.
    """

    slope: float
    se: float
    low: float
    high: float
    intercept: float

    @property
    def demonstrated(self) -> bool:
        """Whether the 95 % interval of the slope excludes 0."""
        return self.low > 0 or self.high < 0

    @property
    def doubling(self) -> float:
        """The expected difference in AUROC if a hospital is twice as large."""
        return self.slope * float(np.log(2.0))


def size_slope(auroc: ArrayLike, variance: ArrayLike, sizes: ArrayLike, tau2: float) -> SizeSlope:
    """Regress ``auroc [H]`` on ``ln sizes [H]`` by least squares with weights ``1 / (variance + tau2)``.

    ``variance [H]`` is the variance of each AUROC, from
    :func:`~raysim.statistics.discrimination.common_curve.common_curve`, and ``tau2`` the variance of true AUROCs
    between hospitals (Paule and Mandel). Hospitals with a NaN are left out. With several seeds, ``auroc`` is each
    hospital's mean over seeds.
    """
    a, v, n = (np.asarray(x, dtype=np.float64) for x in (auroc, variance, sizes))
    defined = np.isfinite(a) & np.isfinite(v) & (n > 0)
    a, v, x = a[defined], v[defined], np.log(n[defined])
    if len(a) < TENTH or x.std() < SAME_SIZE:
        return SizeSlope(NAN, NAN, NAN, NAN, NAN)
    w = 1.0 / (v + tau2)
    centre = w @ x / w.sum()
    spread = w @ np.square(x - centre)
    mean = w @ a / w.sum()
    slope = float(w @ ((x - centre) * (a - mean)) / spread)
    df = len(a) - 2
    residuals = a - mean - slope * (x - centre)
    se = float(np.sqrt(max(1.0, w @ np.square(residuals) / df) / spread))
    reach = float(stdtrit(df, (1 + LEVEL) / 2)) * se
    return SizeSlope(slope, se, slope - reach, slope + reach, float(mean - slope * centre))
