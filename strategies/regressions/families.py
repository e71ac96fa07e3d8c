"""Generalised linear models: a row's contribution to the log-likelihood and its derivatives, by family.

With the canonical link, a row with features ``x`` has the linear predictor ``eta = x beta`` and the mean ``mu``. The
gradient of its loss (the negative log-likelihood) is ``-(y - mu) x``, and the Hessian ``w x x'``, where ``w`` is the
derivative of ``mu`` by ``eta``. Losses leave out constants that depend on ``y`` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import entr, expit

from raysim.strategies.problem import Floats


class Sums(NamedTuple):
    """Sums over rows at the coefficients ``beta [p]``. Adding them over hospitals gives the sums over all rows.

    - ``rows``: the number of rows.
    - ``loss``: the negative log-likelihood.
    - ``gradient [p]``: ``X'(y - mu)``, the direction in which the log-likelihood rises.
    - ``hessian [p, p]``: ``X' diag(w) X`` with the rows' weights ``w`` (the information matrix).
    """

    rows: float
    loss: float
    gradient: Floats
    hessian: Floats

    def __add__(self, other: object) -> Sums:
        if not isinstance(other, Sums):
            return NotImplemented
        return Sums(
            self.rows + other.rows, self.loss + other.loss, self.gradient + other.gradient, self.hessian + other.hessian
        )


@dataclass(frozen=True)
class Family:
    """A family of generalised linear models with its canonical link, such as logistic regression.

    All functions in its fields except ``alone`` work elementwise on arrays of any shape.
    """

    name: str
    mean: Callable[[Floats], Floats]
    """The mean ``mu`` of the label, from the linear predictor ``eta``."""
    loss: Callable[[Floats, Floats], Floats]
    """The negative log-likelihood of each row, from the linear predictor ``eta`` and the label ``y``."""
    weight: Callable[[Floats], Floats]
    """The weight of each row in the Hessian, from the mean ``mu``."""
    weight_slope: Callable[[Floats], Floats]
    """The derivative of the weight by the linear predictor, from the mean ``mu``."""
    own: Callable[[Floats], Floats]
    """The log-likelihood of each row if ``mu`` is its label ``y`` (saturated fit). Added to the loss, it gives half
    the deviance."""
    alone: Callable[[float], float]
    """The mean loss if ``mu`` of every row is the mean label, as a function of the mean label. NaN for linear
    models."""

    def sums(
        self,
        X: Floats,
        y: Floats,
        beta: Floats,
        offset: Floats | float = 0.0,
        counts: Floats | float = 1.0,
        second: bool = True,
    ) -> Sums:
        """Return sums over rows ``X [n, p]`` with outcomes ``y [n]``, at the coefficients ``beta [p]``.

        ``offset [n]`` is added to the linear predictor, and ``counts [n]`` says how often each row counts. If
        ``second`` is false, the Hessian is empty.
        """
        eta = X @ beta + offset
        mu = self.mean(eta)
        hessian = (X * (self.weight(mu) * counts)[:, None]).T @ X if second else np.empty((0, 0))
        return Sums(len(y), float((self.loss(eta, y) * counts).sum()), X.T @ ((y - mu) * counts), hessian)


def _softplus(eta: Floats) -> Floats:
    return np.asarray(np.logaddexp(0.0, eta))


LOGISTIC = Family(
    "logistic",
    mean=lambda eta: np.asarray(expit(eta)),
    loss=lambda eta, y: _softplus(eta) - y * eta,
    weight=lambda mu: mu * (1.0 - mu),
    weight_slope=lambda mu: mu * (1.0 - mu) * (1.0 - 2.0 * mu),
    own=np.zeros_like,
    alone=lambda mean: float(entr(mean) + entr(1.0 - mean)),
)


def _exp(eta: Floats) -> Floats:
    # So long a step is never accepted; without the cap its loss would overflow before it is refused.
    return np.asarray(np.exp(np.minimum(eta, 300.0)))


POISSON = Family(
    "poisson",
    mean=_exp,
    loss=lambda eta, y: _exp(eta) - y * eta,
    weight=lambda mu: mu,
    weight_slope=lambda mu: mu,
    own=lambda y: -entr(y) - y,
    alone=lambda mean: float(mean + entr(mean)),
)

LINEAR = Family(
    "linear",
    mean=lambda eta: eta,
    loss=lambda eta, y: (y - eta) ** 2 / 2.0,
    weight=np.ones_like,
    weight_slope=np.zeros_like,
    own=np.zeros_like,
    alone=lambda mean: np.nan,
)

FAMILIES = {family.name: family for family in (LOGISTIC, LINEAR, POISSON)}
