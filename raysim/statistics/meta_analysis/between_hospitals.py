"""The mean of hospitals' figures and the prediction interval for a further hospital; each hospital's shrunken AUROC.

Shrinking by a single estimate of the spread ignores the uncertainty of this estimate. Shrunken AUROCs and
prediction intervals therefore average over the posterior of the spread. Sources: D. B. Rubin, *Estimation in Parallel
Randomized Experiments*, 1981; A. Gelman, *Prior Distributions for Variance Parameters in Hierarchical Models*, 2006.
Definitions: ``docs/statistics.md``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from raysim.core.arrays import Floats
from raysim.core.levels import Z
from raysim.statistics.discrimination.common_curve import CommonCurve
from raysim.statistics.meta_analysis.spread import hartung_knapp, paule_mandel

FEWEST = 3
"""Shrunken values, and a mean over hospitals with its intervals, need at least this many hospitals with a defined
metric."""

FEWEST_TO_PREDICT = 5
"""A prediction interval for a further hospital needs at least this many hospitals with a defined metric."""

WIDEST = 0.5
"""For a metric with values from 0 to 1: the largest candidate for its standard deviation between hospitals."""

WIDEST_UNBOUNDED = 4.0
"""For a figure that can exceed 1 or fall below -1: the largest candidate for its standard deviation between
hospitals."""

GRID = 200
"""The number of candidates for the standard deviation between hospitals."""

AT_ONCE = 8192
"""The number of hospitals processed at once."""


def shrunken_auroc(curve: CommonCurve) -> Floats:
    """Return each hospital's AUROC shrunken towards the mean over hospitals, with 95 % limits. The rows of the result
    ``[3, H]`` are the estimates, the lower limits and the upper limits.

    All three are NaN where the AUROC is undefined, and everywhere if fewer than three hospitals have a defined AUROC.
    Do not use the estimates to describe differences between hospitals: they vary less than the true AUROCs.
    """
    judged = curve.judged
    shrunken = np.full((3, len(judged)), np.nan)
    if judged.sum() >= FEWEST:
        each = posterior(curve.auroc[judged], curve.variance[judged])
        shrunken[:, judged] = np.clip([each.mean, each.mean - Z * each.sd, each.mean + Z * each.sd], 0.0, 1.0)
    return shrunken


class Pooled(NamedTuple):
    """The mean ``estimate`` of a figure in a population of hospitals, with its 95 % interval ``low`` to ``high``.

    ``tau`` is the standard deviation of the figure over hospitals, and ``next_low`` to ``next_high`` the prediction
    interval for a further hospital.
    """

    estimate: float
    low: float
    high: float
    tau: float
    next_low: float
    next_high: float
    hospitals: int


def pooled(y: Floats, v: Floats, widest: float) -> Pooled:
    """Compute mean, standard deviation and prediction interval of a figure in a population of hospitals. ``y [H]`` are
    the figures of ``H`` hospitals, and ``v [H]`` their sampling variances.

    Hospitals with an undefined figure, or a variance that is undefined or 0, are left out. The interval of the mean is
    Hartung and Knapp's; the standard deviation is Paule and Mandel's. The prediction interval averages over the
    posterior of the standard deviation, which is at most ``widest``. All are NaN for fewer than three hospitals, and
    the prediction interval for fewer than five.
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


class Posterior(NamedTuple):
    """The posterior mean and standard deviation of the true figure of each of ``k`` hospitals, ``[k]``, and of a
    further hospital.
    """

    mean: Floats
    sd: Floats
    further_mean: float
    further_sd: float


def posterior(y: ArrayLike, v: ArrayLike, widest: float = WIDEST) -> Posterior:
    """Compute the posterior of the true figures of ``k`` hospitals and of a further hospital. The estimates ``y [k]``
    are normal around the true figures with variances ``v [k]``, and the true figures are normal over hospitals. The
    mean and variance of the true figures have uniform priors; the variance is at most ``widest`` squared. A uniform
    prior of the standard deviation would give too narrow intervals.
    """
    estimates, variances = np.asarray(y, dtype=np.float64), np.asarray(v, dtype=np.float64)
    steps = (np.arange(GRID) + 0.5) / GRID
    taus = widest * steps**2
    squared = np.square(taus)
    blocks = [slice(low, low + AT_ONCE) for low in range(0, len(estimates), AT_ONCE)]

    @lru_cache(maxsize=1)  # a single block is computed only once
    def precisions(first: int) -> Floats:
        return 1.0 / (variances[first : first + AT_ONCE] + squared[:, None])

    total, weighted, logs, residuals = (np.zeros(GRID) for _ in range(4))
    for block in blocks:
        w = precisions(block.start)
        total += w.sum(axis=1)
        weighted += _dot(w, estimates[block])
        logs += np.log(w).sum(axis=1)
    mu = weighted / total
    for block in blocks:
        residuals += _dot(precisions(block.start), np.square(estimates[block] - mu[:, None]))
    log_weight = 0.5 * (logs - np.log(total) - residuals)
    # The prior is uniform in tau^2: d(tau^2) is proportional to tau d(tau), and d(tau) on the grid to ``steps``.
    weight = steps * taus * np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean, sd = np.empty_like(estimates), np.empty_like(estimates)
    # Variances use distances from the mean: for small ones, E[x^2] - E[x]^2 would lose all digits.
    for block in blocks:
        shrinkage = squared[:, None] * precisions(block.start)
        centre = mu[:, None] + shrinkage * (estimates[block] - mu[:, None])
        mean[block] = (weight[:, None] * centre).sum(axis=0)
        variance = variances[block] * shrinkage + np.square(1 - shrinkage) / total[:, None]
        variance += np.square(centre - mean[block])
        sd[block] = np.sqrt((weight[:, None] * variance).sum(axis=0))
    further = (weight * mu).sum()
    variance = (weight * (squared + 1.0 / total + np.square(mu - further))).sum()
    return Posterior(mean, sd, float(further), float(np.sqrt(variance)))


def _dot(a: Floats, b: Floats) -> Floats:
    return np.asarray(np.matmul(a[:, None, :], np.broadcast_to(b, a.shape)[:, :, None])[:, 0, 0])
