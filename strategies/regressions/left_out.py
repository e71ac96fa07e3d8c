"""The choice of a regression's ridge by leave-one-out losses.

The effect of leaving a row out is approximated by one Newton step, which is exact in a linear regression (Rad and
Maleki 2020: *A scalable estimate of the out-of-sample prediction error via approximate leave-one-out*).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from raysim.strategies.problem import Floats
from raysim.strategies.regressions.families import Family
from raysim.strategies.regressions.newton_steps import CALLS, ROSE, STOP, fitted, independent


class Shrunk(NamedTuple):
    """The fits under each of R ridge penalties: ``beta [R, p]`` and the mean leave-one-out losses ``loss [R]``."""

    beta: Floats
    loss: Floats

    @property
    def best(self) -> Floats:
        """The coefficients ``[p]`` under the ridge with the smallest leave-one-out loss."""
        return np.asarray(self.beta[np.argmin(np.where(np.isnan(self.loss), np.inf, self.loss))])


def shrunk(family: Family, X: Floats, y: Floats, ridges: Sequence[float]) -> Shrunk:
    """Fit a regression to rows ``X [n, p]`` with outcomes ``y [n]`` under each of the ``ridges``, all above 0."""
    beta = _together(family, X, y, ridges)
    if beta is None:
        beta = np.stack([fitted(family, X, y, ridge=ridge).beta for ridge in ridges])
    eta = beta @ X.T
    mu = family.mean(eta)
    weight = family.weight(mu)
    reach = np.einsum("ij,rji->ri", X, np.linalg.solve(_curvature(X, weight, _penalties(ridges, X)), X.T))
    without = eta - (y - mu) * reach / np.maximum(1.0 - weight * reach, 1e-9)
    return Shrunk(beta, family.loss(without, y).mean(axis=1))


def _together(family: Family, X: Floats, y: Floats, ridges: Sequence[float]) -> Floats | None:
    """Fit the regression under all R ``ridges`` together, and return the coefficients ``[R, p]``.

    Return None if a step would have to be halved, or if the steps do not converge.
    """
    keep = independent(family.sums(X, y, np.zeros(X.shape[1])).hessian)
    varying, penalties = X[:, keep], _penalties(ridges, X)[:, keep]
    beta, before = np.zeros(penalties.shape), np.full(len(ridges), np.inf)
    for _ in range(CALLS):
        eta = beta @ varying.T
        mu = family.mean(eta)
        loss = family.loss(eta, y).sum(axis=1) + (penalties * beta**2).sum(axis=1) / 2.0
        if not (loss <= before + ROSE * (1.0 + np.abs(loss))).all():
            return None
        gradient = (y - mu) @ varying - penalties * beta
        step = np.linalg.solve(_curvature(varying, family.weight(mu), penalties), gradient[:, :, None])[:, :, 0]
        beta, before = beta + step, loss
        if ((gradient * step).sum(axis=1) / 2.0 <= STOP * (1.0 + np.abs(loss))).all():
            fits = np.zeros((len(ridges), X.shape[1]))
            fits[:, keep] = beta
            return fits
    return None


def _penalties(ridges: Sequence[float], X: Floats) -> Floats:
    """Return the weights ``[R, p]`` of the squared coefficients in each ridge penalty; 0 for the intercept."""
    penalties = np.repeat(np.asarray(ridges, dtype=np.float64)[:, None], X.shape[1], axis=1)
    penalties[:, 0] = 0.0
    return penalties


def _curvature(X: Floats, weight: Floats, penalties: Floats) -> Floats:
    curvature: Floats = (X.T * weight[:, None, :]) @ X
    places = np.arange(X.shape[1])
    curvature[:, places, places] += penalties
    return curvature
