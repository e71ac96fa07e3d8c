"""Newton's steps from noisy sums: each row's contribution is bounded, so that noise can hide every patient.

A row ``x``, with a 1 for the intercept, is clipped to the norm ``R``. With the label ``y`` (0 or 1) and the predicted
probability ``mu``, the norm of the gradient ``(y - mu) x`` is at most ``R a``, where ``a = |y - mu|``. The Hessian
``mu (1 - mu) x x'`` is sent as an upper triangle, with off-diagonal numbers multiplied by the square root of 2. The
norm of this triangle is at most ``R^2 a (1 - a)``. If the Hessian is multiplied by ``c``, the norm of gradient and
Hessian together is at most ``R a sqrt(1 + c^2 R^2 (1 - a)^2)``. For ``c <= phi^2.5 / R``, with the golden ratio
``phi``, this bound is largest at ``a = 1``, where it is ``R``. The Hessian therefore adds nothing to the privacy cost
of the gradient.

The noise on the Hessian of p columns has a spectral norm of about ``sqrt(2 p)`` standard deviations. A number of this
size is added to the diagonal of the Hessian.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from raysim.strategies.problem import Floats
from raysim.strategies.programs import Bound, Context, Program, Reply, Send
from raysim.strategies.regressions.families import LOGISTIC
from raysim.strategies.regressions.sums_program import design, symmetric, triangle
from raysim.strategies.view import Noise

FREE = ((1.0 + 5.0**0.5) / 2.0) ** 2.5
"""The largest ``c R`` at which the Hessian adds nothing to the privacy cost, 3.3302. Up to it, the gradient of a row of
norm R and ``c`` times the Hessian together have a norm of at most R."""
LONGEST = 2.0
"""The largest norm of a step of the coefficients."""
MOST_NOISY = 1000
"""The largest number of columns for which a fit with noise is allowed; the Hessian of a row then needs 4 MB."""
BITS = 24
"""Noisy sums are rounded to multiples of ``2^-BITS``."""


def scaled(p: int, length: float) -> Floats:
    """Return the factors that multiply the ``p (p + 1) / 2`` numbers in the upper triangle of a row's Hessian.

    The scaled Hessian of a row of norm at most ``length`` adds nothing to the privacy cost of the gradient.
    """
    row, column = np.triu_indices(p)
    return np.asarray(np.where(row == column, 1.0, 2.0**0.5) * (FREE / length))


def shortened(X: Floats, length: float) -> Floats:
    """Clip rows ``X [n, p]`` to norms of at most ``length``."""
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    return np.asarray(X * np.minimum(1.0, length / np.maximum(lengths, np.finfo(float).tiny)))


@dataclass(frozen=True)
class BoundedSums(Program):
    """The gradient and the scaled Hessian (:func:`scaled`) of a logistic regression, summed over rows.

    They are computed at the received coefficients ``beta [p]``. Rows are clipped to the norm ``length``.
    """

    p: int
    length: float
    name: str = "regression"

    @property
    def sends(self) -> Mapping[str, Send]:
        bound = Bound("row", self.length)
        return {
            "gradient": Send((self.p,), "gradient", by="row", bits=BITS, bound=bound, joint="step"),
            "hessian": Send(triangle(self.p), "hessian", by="row", bits=BITS, bound=bound, joint="step"),
        }

    def run(self, at: Context) -> Reply:
        X, y = shortened(design(at.rows.X), self.length), at.rows.y.astype(np.float64)
        mu = LOGISTIC.mean(X @ at.received["beta"])
        counts = 1.0 if at.rows.weights is None else at.rows.weights
        row, column = np.triu_indices(self.p)
        products = X[:, row] * X[:, column] * scaled(self.p, self.length)
        return Reply(
            {
                "gradient": X * ((y - mu) * counts)[:, None],
                "hessian": products * (LOGISTIC.weight(mu) * counts)[:, None],
            }
        )


def floor(noise: Noise, p: int) -> float:
    """Return the number that is added to a noisy Hessian's diagonal: about the largest eigenvalue of the noise."""
    return math.sqrt(2.0 * p) * noise.multiplier * noise.clip**2 / FREE


def stepped(beta: Floats, sums: Mapping[str, Floats], noise: Noise, ridge: float) -> Floats:
    """Return the coefficients ``[p]`` after a Newton step from ``beta [p]`` with the noisy ``sums``.

    The ridge penalty does not apply to the intercept, the first coefficient.
    """
    p = len(beta)
    penalty = np.full(p, ridge)
    penalty[0] = 0.0
    hessian = symmetric(sums["hessian"] / scaled(p, noise.clip)) + np.diag(penalty)
    values, vectors = np.linalg.eigh(hessian)
    # Without noise the smallest eigenvalues belong to linearly dependent columns.
    least = max(floor(noise, p), 1e-9 * max(float(values[-1]), 1.0))
    step = vectors @ (vectors.T @ (sums["gradient"] - penalty * beta) / (np.maximum(values, 0.0) + least))
    return np.asarray(beta + step * min(1.0, LONGEST / max(float(np.linalg.norm(step)), LONGEST)))
