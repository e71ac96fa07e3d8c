"""Calculations of one-shot methods, which combine the regressions that hospitals fit to their own rows.

The sources are listed in :mod:`.meta_analysis` (inverse-variance means), :mod:`.odal`, and :mod:`.ensemble` (stacked
weights).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from raysim.strategies.problem import Floats
from raysim.strategies.regressions.families import Family, Sums
from raysim.strategies.regressions.newton_steps import Fit, independent


class Information(NamedTuple):
    """The Fisher information ``total [p, p]`` of a hospital's own regression, and ``weighted [p]``, its product with
    the coefficients.

    Rows and columns are 0 for coefficients that the hospital cannot estimate. Both arrays are added over hospitals.
    """

    weighted: Floats
    total: Floats

    def combined(self) -> tuple[Floats, Floats]:
        """Return the inverse-variance weighted mean of hospitals' coefficients, and its covariance matrix.

        For a coefficient that no hospital can estimate, the mean is 0 and the covariances are NaN.
        """
        keep = independent(self.total)
        within = np.ix_(keep, keep)
        covariance = np.full_like(self.total, np.nan)
        covariance[within] = np.linalg.inv(self.total[within])
        mean = np.zeros_like(self.weighted)
        mean[keep] = covariance[within] @ self.weighted[keep]
        return mean, covariance


def information(family: Family, X: Floats, y: Floats, fit: Fit) -> Information:
    """Return the Fisher information of a hospital's rows ``X [n, p]``, ``y [n]`` at the coefficients of its own
    ``fit``."""
    keep = np.zeros(X.shape[1], dtype=np.bool_) if fit.keep is None else fit.keep
    hessian = family.sums(X, y, fit.beta).hessian * np.outer(keep, keep)
    return Information(hessian @ fit.beta, hessian)


class Surrogate(NamedTuple):
    """A lead hospital's likelihood, corrected by all hospitals' gradients at one point.

    Gradients are those of the log-likelihood. Gradients and information matrices are means over rows.

    - ``at [p]``: the coefficients of the point.
    - ``slope [p]``: the gradient over all hospitals' rows minus the gradient over the lead's rows.
    - ``curvature [p, p]``: the same difference of information matrices; None for a correction of gradients only.
    """

    at: Floats
    slope: Floats
    curvature: Floats | None

    @classmethod
    def of(cls, at: Floats, everybody: Sums, lead: Sums, *, second: bool) -> Surrogate:
        """Return the surrogate likelihood from sums over all hospitals' rows, and over the lead's rows, at the
        coefficients ``at``."""
        slope = everybody.gradient / everybody.rows - lead.gradient / lead.rows
        return cls(at, slope, everybody.hessian / everybody.rows - lead.hessian / lead.rows if second else None)

    def sums(self, own: Sums, beta: Floats) -> Sums:
        """Return the sums of the surrogate likelihood at ``beta``; ``own`` are the sums of the lead's likelihood."""
        n, beyond = own.rows, beta - self.at
        bent = np.zeros_like(own.hessian) if self.curvature is None else self.curvature
        return Sums(
            n,
            own.loss - n * float(self.slope @ beta) + n * float(beyond @ bent @ beyond) / 2.0,
            own.gradient + n * self.slope - n * bent @ beyond,
            own.hessian + n * bent,
        )

    def fitted(self, family: Family, X: Floats, y: Floats) -> Fit:
        """Maximise the surrogate likelihood with the lead's rows ``X [n, p]`` and ``y [n]``, starting from
        :attr:`at`."""
        fit = Fit(self.at)
        while fit.going:
            fit = fit.updated(self.sums(family.sums(X, y, fit.beta), fit.beta))
        return fit


def stacked(products: Floats, with_outcome: Floats) -> Floats:
    """Return the weights ``[H]`` of H hospitals' models in an ensemble, by non-negative least squares.

    ``z [H]`` has the predictions of the H models for a row with outcome ``y``, with 0 for the model of the row's own
    hospital. ``products [H, H]`` is the sum over all rows of ``z z'``, and ``with_outcome [H]`` the sum of ``z y``.
    """
    values, vectors = np.linalg.eigh(products)
    positive = values > 1e-12 * max(values[-1], np.finfo(float).tiny)
    root = (vectors * np.sqrt(np.where(positive, values, 0.0))).T
    target = np.zeros(len(values))
    target[positive] = (vectors.T @ with_outcome)[positive] / np.sqrt(values[positive])
    return np.asarray(nnls(root, target)[0])
