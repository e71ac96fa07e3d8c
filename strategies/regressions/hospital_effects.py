"""Regressions in which every hospital has its own intercept and slopes are shared, from sums that stay small.

An own intercept never leaves its hospital: what is sent has had it eliminated. Sources: Schur complements of Newton's
system; Laplace's approximation of random intercepts (Breslow and Clayton 1993).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from raysim.strategies.problem import Floats
from raysim.strategies.regressions.families import Family


class Eliminated(NamedTuple):
    """A hospital's sums for the shared slopes, its own intercept eliminated; of several hospitals they add up.

    - ``loss``: the negative log-likelihood.
    - ``gradient [q]``: ``g_b - H_ab g_a / H_aa``.
    - ``hessian [q, q]``: ``H_bb - H_ab H_ab' / H_aa``.
    - ``own``: ``g_a^2 / H_aa``, the intercept's part of the fall still to come, times two.
    """

    loss: float
    gradient: Floats
    hessian: Floats
    own: float


class Own(NamedTuple):
    """What a hospital keeps to move its intercept once the slopes' step arrives."""

    intercept: float
    gradient: float
    curvature: float
    cross: Floats
    """``H_ab [q]``."""

    def moved(self, step: Floats) -> float:
        """The intercept after the slopes' ``step [q]``."""
        return self.intercept + (self.gradient - float(self.cross @ step)) / self.curvature


def eliminated(family: Family, X: Floats, y: Floats, intercept: float, slopes: Floats) -> tuple[Eliminated, Own]:
    """A hospital's sums at its ``intercept`` and the shared ``slopes [q]``, of rows ``X [n, q]`` and ``y [n]``."""
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
    """A hospital's part of the marginal log-likelihood of random intercepts, by Laplace's approximation.

    - ``value``: the log-likelihood with the mode of its intercept put in, and the approximation's determinant.
    - ``gradient [p + 1]``: by the coefficients, and by the logarithm of the intercepts' standard deviation.
    - ``mode``: of the hospital's intercept; stays there.
    """

    value: float
    gradient: Floats
    mode: float


def laplace(family: Family, X: Floats, y: Floats, beta: Floats, log_sd: float, start: float = 0.0) -> Laplace:
    """A hospital's part at ``beta [p]`` and ``log_sd``, of rows ``X [n, p]`` (the common intercept among them)."""
    precision = np.exp(-2.0 * log_sd)
    eta = X @ beta
    mode = _mode(family, eta, y, precision, start)
    mu = family.mean(eta + mode)
    weight, slope = family.weight(mu), family.weight_slope(mu)
    W, D, bend = float(weight.sum()), float(weight.sum()) + precision, float(slope.sum())
    value = -float(family.loss(eta + mode, y).sum()) - mode**2 * precision / 2.0 - np.log1p(W / precision) / 2.0
    moves = -(weight @ X) / D
    by_beta = X.T @ (y - mu) - (slope @ X + bend * moves) / (2.0 * D)
    # The mode moves with the spread: du / d ln sd = 2 u precision / D.
    by_log_sd = mode**2 * precision - W / D - bend * mode * precision / D**2
    return Laplace(value, np.concatenate([by_beta, [by_log_sd]]), mode)


def _mode(family: Family, eta: Floats, y: Floats, precision: float, start: float) -> float:
    """The mode of one intercept: Newton's steps, halved where the penalised loss would rise."""
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
