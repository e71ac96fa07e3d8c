"""Firth's logistic regression of one hospital's rows: the likelihood is penalised by the information matrix.

D. Firth: *Bias Reduction of Maximum Likelihood Estimates*, Biometrika 1993; G. Heinze, M. Schemper: *A Solution to the
Problem of Separation in Logistic Regression*, Statistics in Medicine 2002.

The loss is the negative log-likelihood minus ``1/2 ln det I``, with the information matrix ``I``. Second derivatives
take long, and are computed only if the fit converges slowly. Otherwise L-BFGS corrects the second derivatives that were
computed last, or ``I`` if none have been computed yet. The loss may have several minima; the fit is the minimum that is
reached from coefficients of 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf, dpotrs

from raysim.strategies.problem import Floats
from raysim.strategies.regressions.families import LOGISTIC
from raysim.strategies.regressions.lbfgs import Pairs, remembered, uphill
from raysim.strategies.regressions.newton_steps import FIRTH_CALLS, FIRTH_STOP, ROSE, Fit, Status, independent

PRODUCTS = 2500**2
"""Second derivatives are computed only if ``n min(n, c)`` is at most this number, for n rows and c pairs of columns."""
SLOW = 0.1
"""Second derivatives are computed if the expected fall of the loss is more than this share of the previous step's
expected fall."""
REMEMBERED = 20
"""The number of earlier steps from which L-BFGS approximates second derivatives."""


class Point(NamedTuple):
    """Firth's loss at the coefficients ``beta [k]`` for n rows of k columns, with the values from which derivatives are
    computed."""

    beta: Floats
    loss: float
    gradient: Floats
    """The negative gradient of the loss, ``[k]``: the direction in which the penalised likelihood rises."""
    mu: Floats
    weight: Floats
    root: Floats
    """The lower Cholesky factor ``[k, k]`` of the information matrix."""
    scaled: Floats
    """A matrix ``[n, k]``; the hat matrix is ``scaled scaled'``."""
    hat: Floats
    """The diagonal of the hat matrix, ``[n]``."""

    @classmethod
    def at(cls, X: Floats, y: Floats, beta: Floats) -> Point | None:
        """Return the point at ``beta [k]``; None if the information matrix has no Cholesky factor there."""
        eta = X @ beta
        mu = LOGISTIC.mean(eta)
        weight = LOGISTIC.weight(mu)
        rows = X * np.sqrt(weight)[:, None]
        root, refused = dpotrf(rows.T @ rows, lower=1)
        if refused:
            return None
        loss = float(LOGISTIC.loss(eta, y).sum()) - float(np.log(np.diag(root)).sum())
        scaled = dtrsm(1.0, root, rows, side=1, lower=1, trans_a=1)
        hat = np.einsum("ij,ij->i", scaled, scaled)
        return cls(beta, loss, X.T @ (y - mu + hat * (0.5 - mu)), mu, weight, root, scaled, hat)

    def curvature(self, X: Floats) -> Floats | None:
        """Return the loss's second derivatives ``[k, k]`` for rows ``X [n, k]``; None if ``n`` and ``k`` are too large
        (:data:`PRODUCTS`).

        The derivatives are ``X' diag(w (1 + hat) - a^2 hat / 2) X + X' diag(a) (M * M) diag(a) X / 2``. ``mu`` are the
        predicted probabilities, ``w`` the weights of rows, and ``a = 1 - 2 mu``. ``Z`` is ``scaled``, ``M = Z Z'`` the
        hat matrix, and ``hat`` its diagonal. The elementwise product ``M * M`` is ``K K'``, where a row of ``K`` has
        the products of all ``k^2`` ordered pairs of numbers in a row of ``Z``.
        """
        first, second = np.triu_indices(X.shape[1])
        if len(X) * min(len(X), len(first)) > PRODUCTS:
            return None
        slope = 1.0 - 2.0 * self.mu
        bent = (X * slope[:, None]).astype(np.float32)  # the step may be inexact, the gradient is exact
        scaled = self.scaled.astype(np.float32)
        if len(first) < len(X):
            projected = bent.T @ (scaled[:, first] * scaled[:, second])
            squares = (projected * np.where(first == second, np.float32(1.0), np.float32(2.0))) @ projected.T
        else:
            squares = bent.T @ ((scaled @ scaled.T) ** 2 @ bent)
        own = self.weight * (1.0 + self.hat) - slope**2 * self.hat / 2.0
        return np.asarray((X * own[:, None]).T @ X + squares / 2.0)


def firth_fit(X: Floats, y: Floats) -> Fit:
    """Fit a logistic regression with Firth's penalty to rows ``X [n, p]`` with outcomes ``y [n]``.

    Columns that are constant at 0, or linear combinations of earlier columns, get the coefficient 0.
    """
    keep = independent(X.T @ X)
    varying = X if keep.all() else X[:, keep]
    beta, halvings, fell = np.zeros(int(keep.sum())), 0, np.inf
    losses: list[float] = []
    last: Point | None = None
    bent: Floats | None = None
    pairs: Pairs = ()
    status: Status = "stopped"
    while len(losses) < FIRTH_CALLS:
        point = Point.at(varying, y, beta)
        losses.append(np.inf if point is None else point.loss)
        if last is not None and not losses[-1] <= last.loss + ROSE * (1 + abs(last.loss)):
            beta, halvings = (beta + last.beta) / 2.0, halvings + 1
            continue
        if point is None:
            break
        if last is not None:
            pairs = remembered(pairs, beta - last.beta, last.gradient - point.gradient, REMEMBERED)
        step = _step(point, pairs, bent)
        decrement, enough = float(point.gradient @ step) / 2.0, FIRTH_STOP * (1 + abs(point.loss))
        if decrement > max(SLOW * fell, enough) and (curvature := point.curvature(varying)) is not None:
            root, refused = dpotrf(curvature, lower=1)
            if not refused:
                bent, pairs = root, ()
                step = _step(point, pairs, bent)
                decrement = float(point.gradient @ step) / 2.0
        beta, last, fell = beta + step, point, decrement
        if decrement <= enough:
            status = "converged"
            break
    found = np.zeros(X.shape[1])
    found[keep] = beta
    return Fit(found, firth=True, status=status, keep=keep, losses=tuple(losses), halvings=halvings)


def _step(point: Point, pairs: Pairs, bent: Floats | None) -> Floats:
    """Return the next step of the k coefficients from ``point``, by L-BFGS with the earlier steps in ``pairs``.

    ``bent [k, k]`` is the Cholesky factor of the curvature; if it is None, the information matrix at ``point`` is used.
    With this matrix, steps would be too long, and are divided by ``1 + k / n`` for n rows.
    """
    n, k = point.scaled.shape

    def curved(rest: Floats) -> Floats:
        solved: Floats = dpotrs(point.root if bent is None else bent, rest, lower=1)[0]
        return solved / (1.0 + k / n) if bent is None else solved

    return uphill(point.gradient, pairs, curved)
