"""Newton's method on sums: what the server makes of each answer, whoever added the sums up.

The method is pure: :meth:`Fit.heard` takes the sums at :attr:`Fit.beta` and returns the next :class:`Fit`. A federated
fit gets them from hospitals, :func:`fitted` from rows at hand. The penalty is ``ridge / 2 |beta|^2`` without the
intercept, which is the first column. Sources: Wu et al. 2012 (GLORE); Firth 1993; Heinze and Schemper 2002.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dposv

from raysim.strategies.problem import Floats, Mask
from raysim.strategies.regressions.families import Family, Sums

STOP = 1e-10
"""The last step is that from which the loss is to fall by no more than this share of 1 + the loss."""
ROSE = 1e-12
"""By how much of 1 + the loss it must rise for a step to be halved."""
CALLS = 25
"""The most sums that a fit asks for."""
FIRTH_STOP, FIRTH_CALLS = 1e-20, 200
"""The same for Firth's penalty where steps are by the information alone, and close in by a factor each."""
PAIRS = 2500**2
"""The most products of pairs, of rows or of columns in a row, that the curvature of Firth's penalty takes; 50 MB."""
COLLINEAR = 1e-9
"""A column leaves whose squared length, once the columns before it are taken out, is below this share of itself."""
GEOMETRIC = (0.33, 0.40)
"""Between which the fall still to come shrinks from step to step where coefficients run away: to 1/e."""
RUNS = 3
"""The number of consecutive such steps after which classes count as separated."""
FLAT = 1e-8
"""So are they where the least eigenvalue of the information is below this share of the greatest."""

Status = Literal["going", "converged", "separated", "stopped"]


def independent(hessian: Floats) -> Mask:
    """Which columns ``[p]`` stay: each is left out that is constant at 0 or made of those before it.

    ``hessian [p, p]`` is ``X' W X`` at any positive weights. Columns are taken in their order, the intercept first.
    """
    scale = np.diag(hessian).copy()
    try:
        # What is left of each column once those before it are taken out is the square of its pivot.
        if (np.diag(np.linalg.cholesky(hessian)) ** 2 > 2.0 * COLLINEAR * scale).all():
            return np.ones(len(scale), dtype=np.bool_)
    except np.linalg.LinAlgError:
        pass  # some column leaves
    rest = hessian.astype(np.float64, copy=True)
    keep = np.zeros(len(scale), dtype=np.bool_)
    for j in range(len(scale)):
        if scale[j] <= 0.0 or rest[j, j] <= COLLINEAR * scale[j]:
            continue
        keep[j] = True
        column = rest[:, j].copy()
        rest -= np.outer(column, column / column[j])
    return keep


@dataclass(frozen=True, eq=False)
class Fit:
    """A fit under way.

    After the last step the sums at the final ``beta`` have not been asked for: they are what standard errors need.
    """

    beta: Floats
    """The coefficients ``[p]`` of which sums are wanted next; those that have left are 0."""
    ridge: float = 0.0
    shares: bool = False
    """Whether columns that are made of others stay and share an effect, which a ridge makes unique."""
    firth: bool = False
    """Whether the likelihood is penalised by half the logarithm of the information's determinant."""
    status: Status = "going"
    keep: Mask | None = None
    """Which columns have stayed, ``[p]``; None before the first sums."""
    accepted: tuple[Floats, float] | None = None
    """The last point whose loss did not rise, with its loss."""
    losses: tuple[float, ...] = ()
    """The penalised loss of every call."""
    decrements: tuple[float, ...] = ()
    """The fall of the loss still to come, at every accepted point."""
    halvings: int = 0
    information: Floats | None = field(default=None, repr=False)
    """The unpenalised information ``[p, p]`` of the last accepted point, which Firth's hat values are made of."""

    @property
    def going(self) -> bool:
        """Whether more sums are wanted."""
        return self.status == "going"

    def heard(self, sums: Sums, curvature: Floats | None = None) -> Fit:
        """The fit after the ``sums`` at :attr:`beta`.

        Under :attr:`firth` their gradient is Firth's. ``curvature [p, p]`` is that of Firth's loss, where it is known.
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
        within = np.ix_(keep, keep)
        bent = None if curvature is None else _step(curvature, penalised.gradient, keep)
        step = _step(penalised.hessian, penalised.gradient, keep) if bent is None else bent
        if step is None:
            return replace(self, keep=keep, losses=losses, beta=beta, status=self._flat(penalised.hessian[within]))
        if self.firth and bent is None:
            # The information leaves the slope of the hat values out, whose mean is p / n: where it is 1, as with as
            # many coefficients as rows, whole steps would be twice too long.
            step /= 1.0 + keep.sum() / sums.rows
        decrement = float(penalised.gradient @ step) / 2.0
        after = replace(
            self,
            beta=beta + step,
            keep=keep,
            accepted=(beta, penalised.loss),
            losses=losses,
            decrements=(*self.decrements, decrement),
            information=sums.hessian,
        )
        if decrement <= (FIRTH_STOP if self.firth and bent is None else STOP) * (1 + abs(penalised.loss)):
            return replace(after, status="converged")
        if not self.firth and self.ridge == 0.0 and separated(after.decrements, penalised.hessian[within]):
            return replace(after, status="separated")
        return after._capped()

    def _capped(self) -> Fit:
        """It, or stopped where it has asked often enough."""
        most = FIRTH_CALLS if self.firth else CALLS
        return replace(self, status="stopped") if len(self.losses) >= most else self

    def _flat(self, hessian: Floats) -> Status:
        """How a fit ends whose ``hessian`` has no Cholesky factor."""
        return "separated" if self.ridge == 0.0 and not self.firth and np.isfinite(hessian).all() else "stopped"


def separated(decrements: Sequence[float], hessian: Floats) -> bool:
    """Whether the coefficients run away: the fall still to come shrinks to 1/e with each step.

    ``decrements``: that fall at every accepted point; ``hessian [k, k]``: at the last, of the columns that stayed.
    """
    ratios = np.divide(decrements[1:], decrements[:-1])[-RUNS:]
    if len(ratios) == RUNS and bool(((ratios >= GEOMETRIC[0]) & (ratios <= GEOMETRIC[1])).all()):
        return True
    scale = 1.0 / np.sqrt(np.diag(hessian))
    values = np.linalg.eigvalsh(hessian * np.outer(scale, scale))
    return len(decrements) > 1 and bool(values[0] < FLAT * values[-1])


def _step(curvature: Floats, gradient: Floats, keep: Mask) -> Floats | None:
    """Newton's step ``[p]`` of the columns that ``keep``; None where the ``curvature`` is not positive."""
    step = np.zeros_like(gradient)
    if not keep.any():
        return step
    _, step[keep], refused = dposv(curvature[np.ix_(keep, keep)], gradient[keep])
    return None if refused else step


def _penalised(sums: Sums, beta: Floats, ridge: float, firth: bool, keep: Mask) -> Sums:
    """The ``sums`` with the penalties; the intercept, the first column, has none of the ridge."""
    weights = np.full_like(beta, ridge)
    weights[0] = 0.0
    loss = sums.loss + float(weights @ beta**2) / 2.0
    if firth:
        loss -= float(np.linalg.slogdet(sums.hessian[np.ix_(keep, keep)])[1]) / 2.0
    return Sums(sums.rows, loss, sums.gradient - weights * beta, sums.hessian + np.diag(weights))


def firth_gradient(
    family: Family, X: Floats, y: Floats, beta: Floats, information: Floats, keep: Mask, counts: Floats | float = 1.0
) -> Floats:
    """Firth's gradient ``X'(y - mu + hat (1/2 - mu))`` of a logistic regression, ``[p]``.

    ``hat = w x' information^-1 x`` over the columns that ``keep``. ``information [p, p]`` may be that of an earlier
    point on the way to the same optimum. A row counts ``counts [n]`` times.
    """
    mu = family.mean(X @ beta)
    kept = X[:, keep]
    leverage = np.einsum("ij,ij->i", kept, np.linalg.solve(information[np.ix_(keep, keep)], kept.T).T)
    gradient: Floats = X.T @ ((y - mu + family.weight(mu) * leverage * (0.5 - mu)) * counts)
    return gradient


def firth_curvature(family: Family, X: Floats, beta: Floats, information: Floats, keep: Mask) -> Floats | None:
    """The second derivatives ``[p, p]`` of Firth's loss of a logistic regression; None where they take more than
    :data:`PAIRS`.

    With ``a = 1 - 2 mu`` and the hat matrix ``M`` they are
    ``X' diag(w (1 + hat) - a^2 hat / 2) X + X' diag(a) (M * M) diag(a) X / 2``. With ``M = Z Z'``, the squares
    ``M * M`` are ``K K'``, where a row of ``K`` has the products of all pairs of columns of ``Z``, which are often
    fewer than the rows.
    """
    first, second = np.triu_indices(int(keep.sum()))
    by_columns = len(first) < len(X)
    if len(X) * min(len(X), len(first)) > PAIRS:
        return None
    mu = family.mean(X @ beta)
    weight, slope, kept = family.weight(mu), 1.0 - 2.0 * mu, X[:, keep]
    try:
        root = np.linalg.cholesky(information[np.ix_(keep, keep)])
    except np.linalg.LinAlgError:
        return None
    scaled = solve_triangular(root, (kept * np.sqrt(weight)[:, None]).T, lower=True)
    hat = np.einsum("ij,ij->j", scaled, scaled)
    bent = kept * slope[:, None]
    bent, scaled = bent.astype(np.float32), scaled.astype(np.float32)  # the step need not be exact, the gradient is
    if by_columns:
        half = (scaled[first] * scaled[second]) @ bent
        twice = np.where(first == second, np.float32(1.0), np.float32(2.0))
        squares = (half * twice[:, None]).T @ half
    else:
        squares = bent.T @ ((scaled.T @ scaled) ** 2 @ bent)
    curvature = np.zeros_like(information)
    curvature[np.ix_(keep, keep)] = (kept * (weight * (1.0 + hat) - slope**2 * hat / 2.0)[:, None]).T @ kept + (
        squares / 2.0
    )
    return curvature


def fitted(family: Family, X: Floats, y: Floats, *, ridge: float = 0.0, firth: bool = False) -> Fit:
    """The fit to rows ``X [n, p]`` and ``y [n]`` at hand, from coefficients of 0."""
    fit = Fit(np.zeros(X.shape[1]), ridge=ridge, firth=firth)
    while fit.going:
        sums, curvature = family.sums(X, y, fit.beta), None
        if firth:
            keep = independent(sums.hessian) if fit.keep is None else fit.keep
            curvature = firth_curvature(family, X, fit.beta, sums.hessian, keep)
            sums = sums._replace(gradient=firth_gradient(family, X, y, fit.beta, sums.hessian, keep))
        fit = fit.heard(sums, curvature)
    return fit
