"""Regressions with an intercept for each hospital and common slopes.

A hospital eliminates its own intercept from sums of derivatives, by the Schur complement of Newton's linear system.
Random intercepts of logistic and Poisson regressions are fitted with Laplace's approximation (see
:mod:`.random_intercepts`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from raysim.strategies.problem import Floats
from raysim.strategies.regressions.families import Family


class Eliminated(NamedTuple):
    """A hospital's sums for the q common slopes, with its own intercept eliminated.

    ``g`` is the gradient of the log-likelihood, and ``H`` the Hessian of the loss, over the hospital's rows. The index
    a stands for the intercept, and b for the slopes.

    - ``loss``: the negative log-likelihood.
    - ``gradient [q]``: ``g_b - H_ab g_a / H_aa``.
    - ``hessian [q, q]``: ``H_bb - H_ab H_ab' / H_aa``.
    - ``own``: ``g_a^2 / H_aa``, twice the fall of the loss that is expected from Newton's step of the intercept.
    """

    loss: float
    gradient: Floats
    hessian: Floats
    own: float


class Own(NamedTuple):
    """The values that a hospital stores to update its own intercept after the server has changed the slopes."""

    intercept: float
    gradient: float
    curvature: float
    cross: Floats
    """The second derivatives of the loss by the intercept and each of the q slopes, ``[q]``."""

    def moved(self, step: Floats) -> float:
        """Return the hospital's intercept after the q slopes have changed by ``step [q]``."""
        return self.intercept + (self.gradient - float(self.cross @ step)) / self.curvature


def eliminated(family: Family, X: Floats, y: Floats, intercept: float, slopes: Floats) -> tuple[Eliminated, Own]:
    """Return a hospital's sums with its own intercept eliminated, and the values by which it updates this intercept.

    Sums and values are computed at ``intercept`` and the common ``slopes [q]``, from rows ``X [n, q]`` and ``y [n]``.
    """
    design = np.column_stack([np.ones(len(y)), X])
    sums = family.sums(design, y, np.concatenate([[intercept], slopes]))
    own = Own(intercept, float(sums.gradient[0]), float(sums.hessian[0, 0]), sums.hessian[0, 1:])
    return (
        Eliminated(
            sums.loss,
            sums.gradient[1:] - own.cross * (own.gradient / own.curvature),
            sums.hessian[1:, 1:] - np.outer(own.cross, own.cross) / own.curvature,
            own.gradient**2 / own.curvature,
        ),
        own,
    )


class Laplace(NamedTuple):
    """A hospital's contribution to the marginal log-likelihood of random intercepts, by Laplace's approximation.

    - ``value``: the approximate marginal log-likelihood.
    - ``gradient [p + 1]``: the derivatives of ``value`` by the coefficients and by the logarithm of the intercepts'
      standard deviation.
    - ``mode``: the mode of the hospital's random intercept, which stays at the hospital.
    """

    value: float
    gradient: Floats
    mode: float


def laplace(family: Family, X: Floats, y: Floats, beta: Floats, log_sd: float, start: float = 0.0) -> Laplace:
    """Return a hospital's contribution to the marginal log-likelihood of random intercepts.

    ``X [n, p]`` has a column of ones for the common intercept, and ``beta [p]`` are the common coefficients. ``log_sd``
    is the logarithm of the intercepts' standard deviation.
    """
    precision = np.exp(-2.0 * log_sd)
    eta = X @ beta
    mode = _mode(family, eta, y, precision, start)
    mu = family.mean(eta + mode)
    weight, slope = family.weight(mu), family.weight_slope(mu)
    W, D, bend = float(weight.sum()), float(weight.sum()) + precision, float(slope.sum())
    value = -float(family.loss(eta + mode, y).sum()) - mode**2 * precision / 2.0 - np.log1p(W / precision) / 2.0
    moves = -(weight @ X) / D
    by_beta = X.T @ (y - mu) - (slope @ X + bend * moves) / (2.0 * D)
    # The mode depends on the standard deviation: du / d ln sd = 2 u precision / D.
    by_log_sd = mode**2 * precision - W / D - bend * mode * precision / D**2
    return Laplace(value, np.concatenate([by_beta, [by_log_sd]]), mode)


def _mode(family: Family, eta: Floats, y: Floats, precision: float, start: float) -> float:
    """Return the mode of a hospital's random intercept, by Newton's method from ``start``.

    ``precision`` is the inverse variance of the intercepts.
    """
    u, loss = start, np.inf
    step = 0.0
    for _ in range(200):
        now = float(family.loss(eta + u, y).sum()) + u**2 * precision / 2.0
        if not now <= loss + 1e-13 * (1.0 + abs(loss)):
            step /= 2.0
            u -= step
            continue
        loss, mu = now, family.mean(eta + u)
        step = (float((y - mu).sum()) - u * precision) / (float(family.weight(mu).sum()) + precision)
        if abs(step) <= 1e-12 * (1.0 + abs(u)):
            return u
        u += step
    return u
