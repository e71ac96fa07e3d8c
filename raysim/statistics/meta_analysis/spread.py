"""The true spread of hospitals, from an estimate ``y_i`` of each hospital and its known variance ``v_i``.

The model is ``y_i = mu_i + e_i`` with ``Var e_i = v_i``, where ``mu_i`` varies around ``mu`` with variance ``tau^2``.
Arguments ``y`` and ``v`` are ``[k]``, finite, ``v > 0``; ``t`` stands for values of ``tau^2``.

Sources: R. C. Paule, J. Mandel, *Consensus Values and Weighting Factors*, 1982; J. Hartung, G. Knapp, *On Tests of the
Overall Treatment Effect in Meta-Analysis with Normally Distributed Responses*, 2001. Definitions and coverage:
``docs/statistics.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from raysim.core.arrays import Floats
from raysim.core.levels import LEVEL

PRECISION = 1e-12
"""Bisection for the variance between hospitals ends at this relative width of the bracket."""


@dataclass(frozen=True)
class Mean:
    """The mean over hospitals: its ``estimate``, its standard error ``se``, and its 95 % interval from ``low`` to
    ``high``.
    """

    estimate: float
    se: float
    low: float
    high: float


def cochran_q(y: ArrayLike, v: ArrayLike, t: float = 0.0) -> float:
    """Return the statistic Q, ``sum (y - mu)^2 / (v + t)``, of the estimates ``y [k]`` of ``k`` hospitals with
    variances ``v [k]``. ``t`` is the variance between hospitals, and ``mu`` the mean weighted by ``1 / (v + t)``.
    """
    y, v = _checked(y, v)
    w = 1.0 / (v + t)
    return float(w @ np.square(y - (w @ y) / w.sum()))


def paule_mandel(y: ArrayLike, v: ArrayLike) -> float:
    """Return Paule and Mandel's estimate of the variance between ``k`` hospitals. It is the variance at which Q equals
    its expectation ``k - 1``, or 0 if Q is always smaller. It is NaN for fewer than two hospitals.
    """
    y, v = _checked(y, v)
    return _root(y, v, len(y) - 1.0) if len(y) > 1 else float("nan")


def hartung_knapp(y: ArrayLike, v: ArrayLike, t: float) -> Mean:
    """Return the mean of the estimates ``y [k]`` of ``k`` hospitals, weighted by ``1 / (v + t)``, and its t interval.
    ``v [k]`` are the variances of the estimates, and ``t`` is the variance between hospitals.

    The interval has ``k - 1`` degrees of freedom. The standard error is computed from the residuals and from the
    variances, and the larger one is used. Standard error and limits are NaN for one hospital.
    """
    y, v = _checked(y, v)
    w = 1.0 / (v + t)
    df = len(y) - 1
    mean = float(w @ y / w.sum())
    if df < 1:
        return Mean(mean, float("nan"), float("nan"), float("nan"))
    se = float(np.sqrt(max(1.0, cochran_q(y, v, t) / df) / w.sum()))
    reach = float(stdtrit(df, (1 + LEVEL) / 2)) * se
    return Mean(mean, se, mean - reach, mean + reach)


def _root(y: Floats, v: Floats, target: float) -> float:
    """Return the variance between hospitals at which Q equals ``target``, or 0 if Q is always below."""
    if cochran_q(y, v) <= target:
        return 0.0
    low, high = 0.0, float(np.var(y)) + float(v.max())
    while cochran_q(y, v, high) > target:
        high *= 2.0
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        low, high = (middle, high) if cochran_q(y, v, middle) > target else (low, middle)
    return (low + high) / 2


def _checked(y: ArrayLike, v: ArrayLike) -> tuple[Floats, Floats]:
    values, variances = np.asarray(y, dtype=np.float64), np.asarray(v, dtype=np.float64)
    if values.ndim != 1 or values.shape != variances.shape or not len(values):
        raise ValueError(f"y, v: shapes {values.shape} and {variances.shape} must both be [k], with k at least 1")
    if not np.isfinite(values).all() or not (np.isfinite(variances) & (variances > 0)).all():
        raise ValueError(
            "y, v: all values must be finite and all variances positive; leave out hospitals with other values"
        )
    return values, variances
