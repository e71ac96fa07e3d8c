"""Exact linear regression with random intercepts: restricted maximum likelihood from sums over hospitals.

N. M. Laird, J. H. Ware: *Random-Effects Models for Longitudinal Data*, Biometrics 1982; D. A. Harville: *Maximum
Likelihood Approaches to Variance Component Estimation*, JASA 1977.

Hospital i's intercept is the common intercept plus ``u_i ~ N(0, tau^2)``; residuals have the variance ``s^2``. For a
given ``ratio = tau^2 / s^2`` the likelihood depends only on sums over hospitals. A hospital with n rows ``Z = [X, y]``
of features and a label sends ``Z'Z - k Z'1 1'Z`` and ``ln(1 + n ratio)``, and their derivatives by the ratio. Here
``k = ratio / (1 + n ratio)``, and ``1`` is a vector of n ones. The server finds the ratio that maximises the
likelihood.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from raysim.strategies.base import Call, Calls, Context, FederationView, Floats, Ids, Keep, Mask, Program, Reply, Send
from raysim.strategies.regressions.exact import asked
from raysim.strategies.regressions.label_size import ScaledState, with_scale
from raysim.strategies.regressions.newton_steps import independent
from raysim.strategies.regressions.sums_program import Grid, as_theta, design, symmetric, triangle, units, upper

LARGEST = 1e9
"""The largest ratio that may be tried (variance of intercepts divided by variance of residuals)."""


class Mixed(NamedTuple):
    """A hospital's sums and their derivatives by ``ratio``, the variance of intercepts divided by that of residuals."""

    products: Floats
    """Sums of products of the p columns and the label, corrected for the random intercept, ``[p + 1, p + 1]``."""
    products_by_ratio: Floats
    determinant: float
    """The term ``ln(1 + n ratio)`` of the likelihood, for a hospital with n rows."""
    determinant_by_ratio: float

    def restricted(self, rows: int) -> Restricted:
        """Return the restricted likelihood. The fields must be sums over all hospitals, which have ``rows`` rows in
        total."""
        A, b, squares = self.products[:-1, :-1], self.products[:-1, -1], float(self.products[-1, -1])
        keep = independent(A)
        beta = np.zeros(len(b))
        inverse = np.linalg.inv(A[np.ix_(keep, keep)])
        beta[keep] = inverse @ b[keep]
        free = rows - int(keep.sum())
        variance = (squares - float(b @ beta)) / free if free > 0 else np.nan
        left = np.append(-beta, 1.0)
        by_ratio = self.products_by_ratio
        bent = float(left @ by_ratio @ left) / variance
        bent += self.determinant_by_ratio + float((inverse * by_ratio[:-1, :-1][np.ix_(keep, keep)]).sum())
        fit = free * (np.log(2.0 * np.pi * variance) + 1.0)
        value = -(fit + self.determinant + float(np.linalg.slogdet(A[np.ix_(keep, keep)])[1])) / 2.0
        se = np.full(len(b), np.nan)
        se[keep] = np.sqrt(np.diag(inverse) * variance)
        return Restricted(value, -bent / 2.0, beta, se, variance, keep)


class Restricted(NamedTuple):
    """The restricted likelihood at one ratio of the variance of intercepts to the variance of residuals.

    - ``value``: the logarithm of the likelihood.
    - ``by_ratio``: the derivative of ``value`` by the ratio.
    - ``beta [p]``: the coefficients; 0 for columns that were left out.
    - ``se [p]``: the standard errors of the coefficients; NaN for columns that were left out.
    - ``variance``: the variance of residuals.
    """

    value: float
    by_ratio: float
    beta: Floats
    se: Floats
    variance: float
    keep: Mask


def mixed(X: Floats, y: Floats, ratio: float) -> Mixed:
    """Return a hospital's sums for the restricted likelihood, and their derivatives by ``ratio``.

    The rows are ``X [n, p]`` with outcomes ``y [n]``. ``ratio`` is the variance of intercepts divided by that of
    residuals.
    """
    n, Z = len(y), np.column_stack([X, y])
    total, share = Z.sum(axis=0), 1.0 + n * ratio
    outer = np.outer(total, total)
    return Mixed(Z.T @ Z - ratio / share * outer, -outer / share**2, float(np.log(share)), n / share)


class _Wanted(Exception):
    def __init__(self, ratio: float) -> None:
        super().__init__()
        self.ratio = ratio


def next_ratio(tried: Sequence[tuple[float, float]]) -> tuple[float, bool]:
    """Return the next ratio of variances to try, and whether the search ends with it.

    The search ends at 0, at a root of the derivative, or at the largest power of 8 up to :data:`LARGEST`.

    ``tried`` has the ratios so far, each with the derivative of the log-likelihood by the ratio.
    """
    known = dict(tried)

    def slope(ratio: float) -> float:
        if ratio not in known:
            raise _Wanted(ratio)
        return known[ratio]

    try:
        low, high = 0.0, 1.0
        if not slope(low) > 0.0:
            return 0.0, True
        while slope(high) > 0.0:
            low, high = high, 8.0 * high
            if high > LARGEST:
                return low, True
        return float(brentq(slope, low, high, xtol=1e-14, rtol=1e-12)), True
    except _Wanted as wanted:
        return wanted.ratio, False


@dataclass(frozen=True)
class MixedSums(Program):
    """A hospital's sums for the restricted likelihood at the received ratio of variances.

    The hospital also computes and stores its own intercept.
    """

    p: int
    grid: Grid
    scale: float
    """The factor by which labels are multiplied in the fit."""
    bias: int
    """The index of the intercept among the model's parameters."""
    name: str = "linear_mixed"

    @property
    def sends(self) -> Mapping[str, Send]:
        return {
            "products": self.grid.send("hessian", triangle(self.p + 1)),
            "products_by_ratio": self.grid.squares.send("hessian", triangle(self.p + 1)),
            "determinants": self.grid.send("loss", (2,)),
        }

    @property
    def keeps(self) -> Mapping[str, Keep]:
        return {"model": Keep((self.p,))}

    def run(self, at: Context) -> Reply:
        X, y = design(at.rows.X), at.rows.y.astype(np.float64) * self.scale
        ratio, beta = float(at.received["ratio"]), at.received["beta"]
        own = mixed(X, y, ratio)
        sent = self.grid.sent({"products": upper(own.products)}, at)
        sent["products_by_ratio"] = self.grid.squares.within(upper(own.products_by_ratio))
        sent["determinants"] = self.grid.within(np.array([own.determinant, own.determinant_by_ratio]))
        model = np.zeros(self.p)
        left = float((y - X @ beta).sum())
        model[self.bias] = (beta[0] + ratio / (1.0 + len(y) * ratio) * left) / self.scale
        return Reply(sent, {"model": model})


@dataclass(frozen=True, eq=False)
class MixedState(ScaledState):
    """The state of the fit. Row 0 of ``models`` has the coefficients at the ratio that was tried last."""

    tried: tuple[tuple[float, float], ...] = ()
    """The ratios tried so far, each with the derivative of the restricted log-likelihood."""
    fit: Restricted | None = None
    """The fit at the last ratio, to labels that are multiplied by ``scale``; None before the first round."""
    ended: bool = False
    """Whether the best ratio was found and hospitals have computed their intercepts."""

    @property
    def facts(self) -> dict[str, float]:
        """Return whether the fit converged, and the variances between and within hospitals, in the label's squared
        unit."""
        if self.fit is None or self.scale is None:
            return {}
        within = self.fit.variance / self.scale**2
        return {
            "converged": float(self.ended),
            "variance_between": self.tried[-1][0] * within,
            "variance_within": within,
        }


def mixed_round(view: FederationView, own: MixedState, ids: Ids) -> Calls:
    """Run a round, in which hospitals send their sums at the next ratio of variances."""
    if own.ended:
        return own
    own = yield from with_scale(view, own, ids)
    rows = int(view.sizes[ids].sum())
    grid, scale = units(view, own.scale, view.sizes[ids])
    p = len(view.initial)
    program = MixedSums(p, grid, scale, int(np.arange(p)[view.parameters["bias"]][0]))
    ratio, found = next_ratio(own.tried)
    beta = np.zeros(p) if own.fit is None else own.fit.beta
    answers = yield from asked(Call(program, {"ratio": ratio, "beta": beta}, ids), own)
    fit = _restricted(answers.sums, rows)
    if found or next_ratio((*own.tried, (ratio, fit.by_ratio))) == (ratio, True):
        yield from asked(Call(program, {"ratio": ratio, "beta": fit.beta}, ids), own)
        found = True
    tried = (*own.tried, (ratio, fit.by_ratio))
    return replace(own, tried=tried, fit=fit, ended=found, models=as_theta(view, fit.beta / scale)[None])


def _restricted(sums: Mapping[str, Floats], rows: int) -> Restricted:
    products, by_ratio = (symmetric(sums[name]) for name in ("products", "products_by_ratio"))
    return Mixed(products, by_ratio, *sums["determinants"].tolist()).restricted(rows)
