"""Standard errors of coefficients: model-based, and robust to differences between hospitals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from raysim.strategies.problem import Floats, Mask

LEVEL = 0.95


class Errors(NamedTuple):
    """Standard errors of p coefficients, NaN where undefined.

    - ``se [p]``: the standard error of each coefficient.
    - ``quantile``: the half-width of a confidence interval in standard errors, such as 1.96.
    """

    se: Floats
    quantile: float


@dataclass(frozen=True, eq=False)
class Ending:
    """Sums over all hospitals at the final coefficients, from which standard errors are computed."""

    rows: int
    hospitals: int
    loss: float
    pearson: float
    outcomes: Floats
    """Sums over rows of three numbers: the class weight, the weighted label as fitted, and the weighted log-likelihood
    of a saturated fit (:attr:`Family.own`)."""
    information: Floats
    """The unpenalised Hessian, ``[p, p]``."""
    meat: Floats
    """The sum over hospitals of ``g g'``, where ``g [p]`` is a hospital's gradient; ``[p, p]``."""


def model_based(
    information: Floats, keep: Mask, *, ridge: float = 0.0, variance: float = 1.0, rows: float = np.inf
) -> Errors:
    """Return the model-based standard errors of p coefficients.

    ``information [p, p]`` is the unpenalised information matrix; the first column is the intercept. The covariance is
    ``variance H^-1 information H^-1``, where ``H`` is ``information`` with the ``ridge`` penalty. In a linear model,
    ``variance`` is the residual variance. The quantile is Student's; its degrees of freedom are ``rows`` minus the
    number of columns in ``keep``.
    """
    varying = information[np.ix_(keep, keep)]
    weights = np.where(np.flatnonzero(keep) == 0, 0.0, ridge)
    inverse = np.linalg.inv(varying + np.diag(weights))
    free = rows - keep.sum()
    quantile = float(stdtrit(free, (1 + LEVEL) / 2)) if free > 0 else np.nan
    return Errors(_spread(inverse @ varying @ inverse * variance, keep), quantile)


def by_hospital(
    information: Floats, meat: Floats, keep: Mask, hospitals: int, rows: float, ridge: float = 0.0
) -> Errors:
    """Return standard errors of p coefficients that are valid if hospitals differ (Liang and Zeger 1986, see
    :mod:`.newton`).

    They include the usual correction for small numbers of hospitals and rows. ``meat [p, p]`` is the sum over hospitals
    of ``g g'``, where ``g [p]`` is a hospital's gradient. With one hospital, or with no more rows than columns in
    ``keep``, the standard errors are NaN.
    """
    p = int(keep.sum())
    if hospitals < 2 or rows <= p:
        return Errors(np.full(len(keep), np.nan), np.nan)
    weights = np.where(np.flatnonzero(keep) == 0, 0.0, ridge)
    inverse = np.linalg.inv(information[np.ix_(keep, keep)] + np.diag(weights))
    factor = hospitals / (hospitals - 1) * (rows - 1) / (rows - p)
    V = inverse @ meat[np.ix_(keep, keep)] @ inverse * factor
    return Errors(_spread(V, keep), float(stdtrit(hospitals - 1, (1 + LEVEL) / 2)))


def _spread(covariance: Floats, keep: Mask) -> Floats:
    """Return the standard errors ``[p]``; NaN for columns outside ``keep``."""
    se = np.full(len(keep), np.nan)
    se[keep] = np.sqrt(np.diag(covariance))
    return se
