"""The mean AUROC of hospitals, how far they spread around it, and each hospital's estimate drawn towards it.

On the AUROC scale with the variances of the common curve, for which no hospital has to be left out. The spread has no
interval here: that of :mod:`raysim.statistics.chance.noise_floor` covers, where Q taken to be chi-square covers too
little. Definitions: ``docs/statistics.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysim.statistics.discrimination.common_curve import CommonCurve
from raysim.statistics.levels import Z
from raysim.statistics.meta_analysis.shrinkage import posterior
from raysim.statistics.meta_analysis.spread import Mean, hartung_knapp, paule_mandel

Floats = NDArray[np.float64]

FEWEST = 3
"""Judged hospitals below which there are only the raw figures."""

FEWEST_TO_PREDICT = 5
"""Judged hospitals below which nothing is said of a further one."""


@dataclass(frozen=True, eq=False)
class BetweenHospitals:
    """What ``H`` hospitals say of their mean and spread, on the scale of AUROC.

    - ``hospitals``: how many are judged. ``mean``: their mean with its interval (Hartung and Knapp).
    - ``tau``: the standard deviation of true AUROCs (Paule and Mandel); ``tau_logit``: about that of their logits.
    - ``predicted_low`` to ``predicted_high``: where a further hospital's true AUROC lies, every spread counting as far
      as the data support it; NaN for fewer than five.
    - ``shrunken [H]`` with ``shrunken_low`` and ``shrunken_high``: each hospital's estimate drawn towards the mean, NaN
      where it is not judged. To be read one by one: their spread is smaller than the true one.

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
    """The random-effects summary of one model's AUROC at the judged hospitals of ``curve``."""
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
