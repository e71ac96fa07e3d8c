"""The variance of each hospital's AUROC under one ROC shape for all hospitals.

This variance depends on the hospital's own AUROC only through means over all hospitals.

DeLong's variance is undefined at a hospital with one event, and 0 at a hospital with an AUROC of 1. If all hospitals
have the same ROC shape, the variance is known at such hospitals too, and is positive. It is computed from its three
components, each averaged over the hospitals at which the component is defined. Definitions: ``docs/statistics.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, owens_t

from raysim.core.arrays import Floats
from raysim.metrics.measures import hanley_mcneil
from raysim.statistics.discrimination.auroc import PairSums, u_statistics, variance_from_components

LEAST = 20
"""Variance components are averaged over hospitals if the sum of hospitals' weights is at least this number. The weight
of a hospital is its number of rows of the rarer class, minus 1."""

EDGE = 0.02
"""Smallest distance of the common AUROC from 0 and 1."""

WIDEST = 3.0
"""Largest ratio of the standard deviations of events' and non-events' scores; the smallest is ``1 / WIDEST``."""

BISECTIONS = 50


@dataclass(frozen=True, eq=False)
class CommonCurve:
    """The AUROC of each of ``H`` hospitals, and its variance under the assumption of one ROC curve for all (the common
    curve).

    - ``judged [H]``: whether a hospital has both classes and no NaN score. Other hospitals have NaN in ``auroc`` and
      ``variance``.
    - ``auroc [H]``: each hospital's own AUROC. ``variance [H]``: its variance under the common curve.
    - ``common``: the common AUROC, a mean with weights ``1 / variance``, clipped to a distance of at least :data:`EDGE`
      from 0 and 1.
    - ``event_sd``: the standard deviation of events' scores divided by that of non-events' scores.

    With too few rows, or if a variance is not above 0, ``variance`` is Hanley and McNeil's and ``event_sd`` is 1.
    """

    judged: NDArray[np.bool_]
    auroc: Floats
    variance: Floats
    common: float
    event_sd: float


def common_curve(sums: PairSums) -> CommonCurve:
    """Compute the common ROC curve of ``H`` hospitals, and the variances of their AUROCs, from the ``sums`` that they
    send.
    """
    judged = sums.judged
    m, n = (np.where(judged, count, np.nan) for count in (sums.events, sums.non_events))
    each = u_statistics(sums)
    components = _pooled(each.pair, each.event, each.non_event, np.minimum(m, n) - 1.0)
    variance = None if components is None else np.asarray(variance_from_components(*components, m, n))
    if components is None or variance is None or not (variance[judged] > 0).all():
        # The variance depends on the mean, whose weights depend on the variance: one step from approximate weights.
        rough = _mean(each.auroc, (m + n) / (m * n))
        variance = np.asarray(hanley_mcneil(rough, m, n))
        return CommonCurve(judged, each.auroc, variance, _mean(each.auroc, variance), 1.0)
    common = _mean(each.auroc, variance)
    return CommonCurve(judged, each.auroc, variance, common, binormal_event_sd(common, *components[1:]))


def binormal_components(t: Any, event_sd: Any) -> tuple[Any, Any]:
    """Return the components xi10 (of an event) and xi01 (of a non-event) of the variance of an AUROC. Scores are normal
    and have the true AUROC ``t``. The standard deviation of events' scores is ``event_sd`` times that of non-events'
    scores.
    """
    h = ndtri(t)
    return _orthant(h, event_sd**2 / (1 + event_sd**2)) - t * t, _orthant(h, 1 / (1 + event_sd**2)) - t * t


def binormal_event_sd(auroc: float, event: float, non_event: float) -> float:
    """Return the standard deviation of events' scores divided by that of non-events' scores. Scores are normal with the
    AUROC ``auroc``, and the components of its variance have the ratio ``event / non_event``.
    """
    if not event + non_event > 0:
        return 1.0
    share = event / (event + non_event)
    low, high = -np.log(WIDEST), np.log(WIDEST)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        a, b = binormal_components(auroc, np.exp(middle))
        low, high = (middle, high) if a < share * (a + b) else (low, middle)
    return float(np.exp((low + high) / 2))


def _pooled(pair: Floats, event: Floats, non_event: Floats, weight: Floats) -> tuple[float, float, float] | None:
    """Return the means over hospitals of the three components of the variance of an AUROC, weighted by ``weight``. The
    result is None with too few rows, or if the mean of ``pair`` is not above 0.
    """
    defined = np.isfinite(pair) & (weight > 0)
    if weight[defined].sum() < LEAST:
        return None
    w = weight[defined] / weight[defined].sum()
    first, second, third = (float(w @ values[defined]) for values in (pair, event, non_event))
    return (first, max(second, 0.0), max(third, 0.0)) if first > 0 else None


def _mean(auroc: Floats, variance: Floats) -> float:
    judged = np.isfinite(auroc) & np.isfinite(variance)
    if not judged.any():
        return float("nan")
    w = 1.0 / variance[judged]
    return float(np.clip(w @ auroc[judged] / w.sum(), EDGE, 1.0 - EDGE))


def _orthant(h: Any, correlation: Any) -> Any:
    """Return the probability that two standard normal variables with a given ``correlation`` are both below ``h``.

    D. B. Owen: *Tables for Computing Bivariate Normal Probabilities*, 1956.
    """
    return ndtr(h) - 2.0 * owens_t(h, np.sqrt((1 - correlation) / (1 + correlation)))
