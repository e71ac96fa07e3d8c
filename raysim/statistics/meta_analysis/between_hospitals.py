"""The mean AUROC of hospitals, their spread around it, and each hospital's shrunken estimate; a prediction
interval for a further hospital.

All are on the AUROC scale with the variances of the common curve, so that no hospital has to be left out. The spread
has no interval here. Use that of :mod:`raysim.statistics.chance.noise_floor`: a chi-square interval of Q covers too
little. Definitions: ``docs/statistics.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raysim.core.levels import Z
from raysim.statistics.discrimination.common_curve import CommonCurve
from raysim.statistics.meta_analysis.shrinkage import WIDEST, posterior
from raysim.statistics.meta_analysis.spread import Mean, hartung_knapp, paule_mandel

Floats = NDArray[np.float64]

FEWEST = 3
"""Number of judged hospitals below which there are only the raw figures."""

FEWEST_TO_PREDICT = 5
"""Number of judged hospitals below which there is no prediction for a further one."""


@dataclass(frozen=True, eq=False)
class BetweenHospitals:
    """The mean and spread of ``H`` hospitals on the scale of AUROC.

    - ``hospitals``: the number judged. ``mean``: their mean with its interval (Hartung and Knapp).
    - ``tau``: the standard deviation of true AUROCs (Paule and Mandel); ``tau_logit``: approximately that of their
      logits.
    - ``predicted_low`` to ``predicted_high``: the prediction interval of a further hospital's true AUROC, averaged over
      the posterior of the spread; NaN for fewer than five.
    - ``shrunken [H]`` with ``shrunken_low`` and ``shrunken_high``: each hospital's estimate shrunken towards the mean,
      NaN if it is not judged. Read them one by one: their spread is smaller than the true one.

    Everything is NaN for fewer than three judged hospitals.
    """

    hospitals: int
    mean: Mean
    tau: float
    tau_logit: float
    predicted_low: float
    predicted_high: float
    shrunken: Floats
    shrunken_low: Floats
    shrunken_high: Floats


def between_hospitals(curve: CommonCurve) -> BetweenHospitals:
    """Compute the random-effects summary of one model's AUROC at the judged hospitals of ``curve``."""
    judged = curve.judged
    hospitals = int(judged.sum())
    shrunken = np.full((3, len(judged)), np.nan)
    nan = float("nan")
    if hospitals < FEWEST:
        return BetweenHospitals(hospitals, Mean(nan, nan, nan, nan), nan, nan, nan, nan, *shrunken)
    y, v = curve.auroc[judged], curve.variance[judged]
    t = paule_mandel(y, v)
    mean = hartung_knapp(y, v, t)
    each = posterior(y, v)
    reach = Z * each.further_sd if hospitals >= FEWEST_TO_PREDICT else nan
    shrunken[:, judged] = np.clip([each.mean, each.mean - Z * each.sd, each.mean + Z * each.sd], 0.0, 1.0)
    within = float(np.clip(mean.estimate, 0.0, 1.0))
    tau = float(np.sqrt(t))
    return BetweenHospitals(
        hospitals,
        mean,
        tau,
        tau / (within * (1 - within)) if 0 < within < 1 else nan,
        float(np.clip(each.further_mean - reach, 0.0, 1.0)),
        float(np.clip(each.further_mean + reach, 0.0, 1.0)),
        *shrunken,
    )


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
