"""Newton's steps from noisy sums: each row's contribution is bounded, so that noise can hide every patient.

A row ``x``, its intercept entry included, is clipped to the norm ``R``. The norm of its gradient ``(y - mu) x`` is then
at most ``R a``, with ``a = |y - mu|``. The norm of its Hessian ``mu (1 - mu) x x'`` is at most ``R^2 a (1 - a)``, as an
upper triangle whose off-diagonal entries are multiplied by the square root of 2. If the Hessian is multiplied by ``c``,
the norm of both together is at most ``R a sqrt(1 + c^2 R^2 (1 - a)^2)``. For ``c <= phi^2.5 / R``, with the golden
ratio ``phi``, this is at most ``R``, its value at ``a = 1``: the Hessian adds nothing to the gradient's privacy cost.

The noise is a symmetric random matrix, whose spectral norm is about ``sqrt(2 p)`` standard deviations. The same amount
is added to the diagonal of the Hessian before the step is solved. The norm of a step is at most 2.
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
"""The largest ``c R`` for which the Hessian does not increase the norm of a row's contribution: 3.3302."""
LONGEST = 2.0
"""The largest norm of a step of the coefficients."""
MOST_NOISY = 1000
"""The largest number of columns. Each row has its own gradient and Hessian, which at this limit need 4 MB."""
BITS = 24
"""The grid step of noisy sums is ``2^-BITS``."""


def scaled(p: int, length: float) -> Floats:
    """Return the factors ``[p (p + 1) / 2]`` by which a Hessian's upper triangle is multiplied, for rows of norms up to
    ``length``."""
    row, column = np.triu_indices(p)
    return np.asarray(np.where(row == column, 1.0, 2.0**0.5) * (FREE / length))


def shortened(X: Floats, length: float) -> Floats:
    """Clip rows ``X [n, p]`` to norms of at most ``length``."""
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    return np.asarray(X * np.minimum(1.0, length / np.maximum(lengths, np.finfo(float).tiny)))


@dataclass(frozen=True)
class BoundedSums(Program):
    """The sum over rows of bounded contributions to a logistic regression at ``beta [p]``: gradient and Hessian."""

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
    """Return the number that is added to a noisy Hessian's diagonal: about the largest eigenvalue of its noise."""
    return math.sqrt(2.0 * p) * noise.multiplier * noise.clip**2 / FREE


def stepped(beta: Floats, sums: Mapping[str, Floats], noise: Noise, ridge: float) -> Floats:
    """Return the coefficients ``[p]`` after a step from ``beta [p]`` by noisy ``sums``. The ridge does not apply to the
    intercept."""
    p = len(beta)
    penalty = np.full(p, ridge)
    penalty[0] = 0.0
    hessian = symmetric(sums["hessian"] / scaled(p, noise.clip)) + np.diag(penalty)
    values, vectors = np.linalg.eigh(hessian)
    # Without noise the smallest eigenvalues belong to linearly dependent columns.
    least = max(floor(noise, p), 1e-9 * max(float(values[-1]), 1.0))
    step = vectors @ (vectors.T @ (sums["gradient"] - penalty * beta) / (np.maximum(values, 0.0) + least))
    return np.asarray(beta + step * min(1.0, LONGEST / max(float(np.linalg.norm(step)), LONGEST)))
