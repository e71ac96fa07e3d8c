"""Standard errors of coefficients from sums at the final point, model-based and robust to differences of hospitals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats

from raysim.strategies.problem import Floats, Mask

LEVEL = 0.95


class Errors(NamedTuple):
    """Standard errors of coefficients, NaN where undefined.

    - ``se [p]``: of each coefficient.
    - ``quantile``: how many of them an interval's half width is.
    """

    se: Floats
    quantile: float


@dataclass(frozen=True, eq=False)
class Ending:
    """Sums at the final coefficients."""

    rows: int
    hospitals: int
    loss: float
    pearson: float
    outcomes: Floats
    """The sums of rows, labels and :attr:`Family.own`."""
    information: Floats
    """The unpenalised Hessian, ``[p, p]``."""
    meat: Floats
    """The sum over hospitals of the products of their gradients, ``[p, p]``."""


def model_based(
    information: Floats, keep: Mask, *, ridge: float = 0.0, variance: float = 1.0, rows: float = np.inf
) -> Errors:
    """Standard errors as the likelihood gives them.

    ``information [p, p]`` is unpenalised, at the final coefficients. With a ``ridge``, whose first column is the
    intercept, ``V = H^-1 information H^-1`` of the penalised ``H``. ``variance`` multiplies ``V``: the residual one of
    a linear model, whose quantile is Student's with ``rows - p`` degrees of freedom.
    """
    kept = information[np.ix_(keep, keep)]
    weights = np.where(np.flatnonzero(keep) == 0, 0.0, ridge)
    inverse = np.linalg.inv(kept + np.diag(weights))
    free = rows - keep.sum()
    quantile = float(stats.t.ppf((1 + LEVEL) / 2, free)) if free > 0 else np.nan
    return Errors(_spread(inverse @ kept @ inverse * variance, keep), quantile)


def by_hospital(
    information: Floats, meat: Floats, keep: Mask, hospitals: int, rows: float, ridge: float = 0.0
) -> Errors:
    """Standard errors that hold where hospitals differ (Liang and Zeger 1986), with the usual factor for few of them.

    ``meat [p, p]`` is the sum over ``hospitals`` of ``s s'``, ``s [p]`` being a hospital's gradient at the final
    coefficients. With one hospital they are undefined.
    """
    p = int(keep.sum())
    if hospitals < 2 or rows <= p:
        return Errors(np.full(len(keep), np.nan), np.nan)
    weights = np.where(np.flatnonzero(keep) == 0, 0.0, ridge)
    inverse = np.linalg.inv(information[np.ix_(keep, keep)] + np.diag(weights))
    factor = hospitals / (hospitals - 1) * (rows - 1) / (rows - p)
    V = inverse @ meat[np.ix_(keep, keep)] @ inverse * factor
    return Errors(_spread(V, keep), float(stats.t.ppf((1 + LEVEL) / 2, hospitals - 1)))


def _spread(covariance: Floats, keep: Mask) -> Floats:
    """The roots of the diagonal, NaN for columns that have left, ``[p]``."""
    se = np.full(len(keep), np.nan)
    se[keep] = np.sqrt(np.diag(covariance))
    return se
