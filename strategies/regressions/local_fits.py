"""Hospitals' own fits of a logistic regression, which the one-shot methods combine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from raysim.strategies.base import Context, Floats, Program, Reply, Send
from raysim.strategies.regressions.families import LOGISTIC
from raysim.strategies.regressions.firth import firth_fit
from raysim.strategies.regressions.newton_steps import Fit, fitted
from raysim.strategies.regressions.one_shot import information
from raysim.strategies.regressions.sums_program import design, triangle, upper

LocalFit = Literal["firth", "likelihood"]


def own_fit(at: Context, how: LocalFit) -> Fit | None:
    """Fit a logistic regression to one hospital's rows.

    Return None if the hospital has no more rows than coefficients, or if the fit does not converge.
    """
    X, y = design(at.rows.X), at.rows.y.astype(np.float64)
    if len(y) <= X.shape[1]:
        return None
    fit = firth_fit(X, y) if how == "firth" else fitted(LOGISTIC, X, y)
    return fit if fit.status == "converged" and np.isfinite(fit.beta).all() else None


@dataclass(frozen=True)
class InformationSums(Program):
    """A hospital's own regression as sums that are added over hospitals.

    ``total [p (p + 1) / 2]`` is the upper triangle of the information matrix, and ``weighted [p]`` the product of this
    matrix and the p coefficients. ``univariate [5, p]`` has, for each coefficient ``b`` with weight ``w``, the numbers
    ``w``, ``w b``, ``w b^2``, ``w^2``, and 1 if the hospital can estimate ``b``, else 0. The weight is
    ``w = 1/(v + spread)``, where ``v`` is the variance of the estimate and ``spread [p]`` the received variance between
    hospitals.
    """

    p: int
    how: LocalFit
    name: str = "information"

    @property
    def sends(self) -> Mapping[str, Send]:
        return {
            "weighted": Send((self.p,), kind="coefficients", bits=20),
            "total": Send(triangle(self.p), kind="hessian", bits=20),
            "univariate": Send((5, self.p), kind="coefficients", bits=20),
            "hospitals": Send(kind="size", bits=0),
        }

    def run(self, at: Context) -> Reply:
        fit, p = own_fit(at, self.how), self.p
        nothing = {"weighted": np.zeros(p), "total": np.zeros(triangle(p)), "univariate": np.zeros((5, p))}
        if fit is None or fit.keep is None:
            return Reply(nothing | {"hospitals": 0})
        own = information(LOGISTIC, design(at.rows.X), at.rows.y.astype(np.float64), fit)
        variance = np.full(p, np.inf)
        variance[fit.keep] = np.diag(np.linalg.inv(own.total[np.ix_(fit.keep, fit.keep)]))
        weight = 1.0 / (variance + at.received["spread"])
        univariate = np.array([weight, weight * fit.beta, weight * fit.beta**2, weight**2, fit.keep])
        return Reply({"weighted": own.weighted, "total": upper(own.total), "univariate": univariate, "hospitals": 1})


@dataclass(frozen=True)
class Coefficients(Program):
    """The coefficients of a hospital's own regression, and whether it could be fitted."""

    p: int
    how: LocalFit
    name: str = "coefficients"

    @property
    def sends(self) -> Mapping[str, Send]:
        return {
            "beta": Send((self.p,), kind="coefficients", how="each"),
            "fitted": Send(kind="size", how="each"),
        }

    def run(self, at: Context) -> Reply:
        fit = own_fit(at, self.how)
        return Reply({"beta": np.zeros(self.p) if fit is None else fit.beta, "fitted": float(fit is not None)})


def univariate_means(sums: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Compute the mean of each of p coefficients over hospitals, and the coefficient's variance between hospitals.

    ``sums [5, p]`` is the array ``univariate`` of :class:`InformationSums`, summed over hospitals. Return four arrays
    ``[p]``: the weighted means, their variances, Cochran's Q, and DerSimonian and Laird's variance between hospitals.
    For a coefficient that no hospital can estimate, these are 0, NaN, 0 and 0.
    """
    weight, first, second, squares, count = sums
    known = weight > 0
    safe = np.where(known, weight, 1.0)
    means = np.where(known, first / safe, 0.0)
    Q = np.where(known, second - first * means, 0.0)
    scale = np.where(known, weight - squares / safe, 0.0)
    between = np.where(scale > 0, np.maximum(Q - (count - 1), 0.0) / np.where(scale > 0, scale, 1.0), 0.0)
    return means, np.where(known, 1.0 / safe, np.nan), Q, between
