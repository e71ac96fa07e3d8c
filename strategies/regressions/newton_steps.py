"""Newton's method on sums: the server's computation after each answer.

The ridge penalty is ``ridge / 2 |beta|^2`` without the intercept, which is the first column. The sources are listed in
:mod:`.newton` and :mod:`.firth`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.linalg.lapack import dposv

from raysim.strategies.problem import Floats, Mask
from raysim.strategies.regressions.families import Family, Sums

STOP = 1e-10
"""The fit has converged if the next step is expected to reduce the loss ``l`` by at most ``STOP (1 + |l|)``."""
ROSE = 1e-12
"""A step is halved if it raises the loss ``l`` by more than ``ROSE (1 + |l|)``."""
CALLS = 25
"""The largest number of times that a fit may request sums."""
FIRTH_STOP, FIRTH_CALLS = 1e-20, 200
"""``STOP`` and ``CALLS`` for Firth's penalty. Federated fits with this penalty converge linearly, because steps use the
information matrix instead of the Hessian of the penalised loss."""
COLLINEAR = 1e-9
"""A column is left out if less than this share of its squared length remains unexplained by earlier columns."""
GEOMETRIC = (0.33, 0.40)
"""If coefficients diverge, each step multiplies the expected fall of the loss by a factor in this range around 1/e."""
RUNS = 3
"""Classes are treated as separated if this number of consecutive factors lie in the range :data:`GEOMETRIC`."""
FLAT = 1e-8
"""Classes are also treated as separated if the Hessian, scaled to a diagonal of ones, has a smallest eigenvalue below
this share of its largest."""

Status = Literal["going", "converged", "separated", "stopped"]


def independent(hessian: Floats) -> Mask:
    """Return a mask ``[p]`` of the columns that are neither constant at 0 nor linear combinations of earlier columns.

    ``hessian [p, p]`` is ``X' W X`` for rows ``X`` with any positive weights ``W``.
    """
    scale = np.diag(hessian).copy()
    try:
        # The squared pivot is the part of a column that earlier columns do not explain.
        if (np.diag(np.linalg.cholesky(hessian)) ** 2 > 2.0 * COLLINEAR * scale).all():
            return np.ones(len(scale), dtype=np.bool_)
    except np.linalg.LinAlgError:
        pass  # some column is left out
    rest = hessian.astype(np.float64, copy=True)
    keep = np.zeros(len(scale), dtype=np.bool_)
    for j in range(len(scale)):
        if scale[j] <= 0.0 or rest[j, j] <= COLLINEAR * scale[j]:
            continue
        keep[j] = True
        column = rest[:, j].copy()
        rest -= np.outer(column, column / column[j])
    return keep


def within(matrix: Floats, keep: Mask) -> Floats:
    """Return the rows and columns of ``matrix [p, p]`` that the mask ``keep [p]`` selects."""
    return matrix if keep.all() else matrix[np.ix_(keep, keep)]


def log_determinant(information: Floats, keep: Mask) -> float:
    """Return the log determinant of the rows and columns of ``information`` that ``keep`` selects; ``-inf`` if
    singular."""
    sign, logarithm = np.linalg.slogdet(within(information, keep))
    return float(logarithm) if sign > 0 else -np.inf


@dataclass(frozen=True, eq=False)
class Fit:
    """The state of fitting a regression by Newton's method."""

    beta: Floats
    """The coefficients ``[p]`` at which the next sums are needed, with 0 for columns that were left out."""
    ridge: float = 0.0
    shares: bool = False
    """Whether linearly dependent columns are included. This requires a ridge."""
    firth: bool = False
    """Whether Firth's penalty is used: half the log determinant of the information matrix is added to the
    log-likelihood."""
    status: Status = "going"
    keep: Mask | None = None
    """A mask ``[p]`` of the included columns; None: the first sums determine it."""
    accepted: tuple[Floats, float] | None = None
    """The last coefficients ``[p]`` at which the loss did not rise, and their loss; None before the first sums."""
    losses: tuple[float, ...] = ()
    decrements: tuple[float, ...] = ()
    """For each step, the expected fall of the loss."""
    halvings: int = 0

    @property
    def going(self) -> bool:
        """Whether the fit is unfinished and needs the sums at :attr:`beta`."""
        return self.status == "going"

    def updated(self, sums: Sums) -> Fit:
        """Return the fit after the next step, from the sums over rows at :attr:`beta`.

        With :attr:`firth`, the gradient in ``sums`` must be Firth's (:func:`firth_gradient`).
        """
        keep = self.keep
        if keep is None:
            keep = np.diag(sums.hessian) > 0.0 if self.shares else independent(sums.hessian)
        beta = np.where(keep, self.beta, 0.0)
        penalised = _penalised(sums, beta, self.ridge, self.firth, keep)
        losses = (*self.losses, penalised.loss)
        if not np.isfinite(penalised.loss) and self.accepted is None:
            return replace(self, keep=keep, losses=losses, status="stopped")
        if self.accepted is not None and not penalised.loss <= self.accepted[1] + ROSE * (1 + abs(self.accepted[1])):
            halved = replace(
                self, keep=keep, losses=losses, halvings=self.halvings + 1, beta=(beta + self.accepted[0]) / 2.0
            )
            return halved._capped()
        step = _step(penalised.hessian, penalised.gradient, keep)
        if step is None:
            flat = self._flat(within(penalised.hessian, keep))
            return replace(self, keep=keep, losses=losses, beta=beta, status=flat)
        if self.firth:
            # The information does not include the slope of the hat values, whose mean is p / n. With as many
            # coefficients as rows this mean is 1, and whole steps would be twice too long.
            step /= 1.0 + keep.sum() / sums.rows
        decrement = float(penalised.gradient @ step) / 2.0
        after = replace(
            self,
            beta=beta + step,
            keep=keep,
            accepted=(beta, penalised.loss),
            losses=losses,
            decrements=(*self.decrements, decrement),
        )
        if decrement <= (FIRTH_STOP if self.firth else STOP) * (1 + abs(penalised.loss)):
            return replace(after, status="converged")
        if not self.firth and self.ridge == 0.0 and separated(after.decrements, within(penalised.hessian, keep)):
            return replace(after, status="separated")
        return after._capped()

    def _capped(self) -> Fit:
        most = FIRTH_CALLS if self.firth else CALLS
        return replace(self, status="stopped") if len(self.losses) >= most else self

    def _flat(self, hessian: Floats) -> Status:
        return "separated" if self.ridge == 0.0 and not self.firth and np.isfinite(hessian).all() else "stopped"


def separated(decrements: Sequence[float], hessian: Floats) -> bool:
    """Return whether the coefficients diverge, because a linear combination of columns separates the classes.

    ``decrements`` has the expected fall of the loss in each step. ``hessian [k, k]`` is the last Hessian, without the
    columns that were left out.
    """
    ratios = np.divide(decrements[1:], decrements[:-1])[-RUNS:]
    if len(ratios) == RUNS and bool(((ratios >= GEOMETRIC[0]) & (ratios <= GEOMETRIC[1])).all()):
        return True
    scale = 1.0 / np.sqrt(np.diag(hessian))
    values = np.linalg.eigvalsh(hessian * np.outer(scale, scale))
    return len(decrements) > 1 and bool(values[0] < FLAT * values[-1])


def _step(curvature: Floats, gradient: Floats, keep: Mask) -> Floats | None:
    step = np.zeros_like(gradient)
    if not keep.any():
        return step
    _, step[keep], refused = dposv(within(curvature, keep), gradient[keep])
    return None if refused else step


def _penalised(sums: Sums, beta: Floats, ridge: float, firth: bool, keep: Mask) -> Sums:
    """Return ``sums`` with the ridge penalty added to the loss, gradient and Hessian.

    If ``firth``, Firth's penalty is added to the loss only.
    """
    weights = np.full_like(beta, ridge)
    weights[0] = 0.0
    loss = sums.loss + float(weights @ beta**2) / 2.0 if ridge else sums.loss
    if firth:
        loss -= log_determinant(sums.hessian, keep) / 2.0
    return Sums(sums.rows, loss, sums.gradient - weights * beta, sums.hessian + np.diag(weights))


def firth_gradient(
    family: Family, X: Floats, y: Floats, beta: Floats, information: Floats, keep: Mask, counts: Floats | float = 1.0
) -> Floats:
    """Return the gradient ``[p]`` of a logistic regression with Firth's penalty, ``X'(y - mu + hat (1/2 - mu))``.

    The hat value of a row ``x`` is ``hat = w x' information^-1 x`` with ``w = mu (1 - mu)``. Only the columns in
    ``keep`` of ``x`` and of ``information [p, p]`` are used. ``counts [n]`` says how often each row counts.
    """
    mu = family.mean(X @ beta)
    varying = X[:, keep]
    leverage = np.einsum("ij,ij->i", varying, np.linalg.solve(within(information, keep), varying.T).T)
    return np.asarray(X.T @ ((y - mu + family.weight(mu) * leverage * (0.5 - mu)) * counts))


def fitted(family: Family, X: Floats, y: Floats, *, ridge: float = 0.0) -> Fit:
    """Fit a regression to rows ``X [n, p]`` with outcomes ``y [n]``, starting from coefficients of 0."""
    fit = Fit(np.zeros(X.shape[1]), ridge=ridge)
    while fit.going:
        fit = fit.updated(family.sums(X, y, fit.beta))
    return fit
