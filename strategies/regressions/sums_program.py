"""The common part of the federated regressions: the model, the design matrix, and the sums that hospitals send."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from scipy.special import ndtri

from raysim.strategies.base import Context, FederationView, Floats, Ids, Program, Reply, Send, Training, Uncertainty
from raysim.strategies.regressions.families import FAMILIES, Family, Sums
from raysim.strategies.regressions.newton_steps import firth_gradient
from raysim.strategies.regressions.standard_errors import Errors
from raysim.strategies.uncertainty import Effect

MOST_BITS = 44
"""Sums are rounded to multiples of ``2^-MOST_BITS`` or of a larger step."""

EFFECTS: Final[Mapping[str, Effect]] = {"logistic": "odds ratio", "poisson": "rate ratio", "linear": "difference"}
"""The effect that a coefficient measures, by family."""

ROOM = 2**10
"""The limit of every sum that a hospital sends is at least this number times the rows of the largest hospital. For
labels that are counts, the limit is multiplied by a power of two above the largest label."""


MOST_COLUMNS = 5000
"""The largest number of columns for strategies that need second derivatives; each hospital then sends 100 MB."""


def check_linear(
    training: Training,
    name: str,
    families: tuple[str, ...] = tuple(FAMILIES),
    *,
    weighs: bool = False,
    most: int | None = MOST_COLUMNS,
) -> None:
    """Raise ``ValueError`` unless the strategy ``name`` can fit the configured model.

    The model must be linear with one output, and the label must suit one of the ``families``. ``weighs``: whether the
    strategy can weight rows by class. ``most``: the largest number of columns; None means any number.
    """
    if training.classes > 2 or (training.classes == 0 and families == ("logistic",)):
        label = f"has {training.classes} classes" if training.classes else "is a number"
        raise ValueError(
            f"strategy.name: {name} needs a label of two classes{_or_number(families)}, but the label {label}; "
            "choose another strategy"
        )
    if set(training.parameters) != {"weight", "bias"}:
        what = "logistic_regression" if training.classes else "linear_regression"
        raise ValueError(
            f"model.name: {name} fits a regression of two classes or a number, and the model has layers; use {what}"
        )
    if (
        most is not None
        and (columns := training.parameters["weight"].stop - training.parameters["weight"].start) > most
    ):
        raise ValueError(
            f"strategy.name: {name} makes a matrix of {columns:,} by {columns:,} columns, and at most {most:,} "
            "columns are possible; leave columns out, or choose newton with solver: lbfgs and a ridge"
        )
    if training.weighted and not weighs:
        raise ValueError(f"training.class_weights: {name} gives all rows the same weight; set it to none")


def _or_number(families: tuple[str, ...]) -> str:
    return "" if families == ("logistic",) else " or a number"


def family_of(known: FederationView | Training) -> Family:
    """Return the regression's family for the label and the model.

    It is logistic for two classes, Poisson for a model of counts, and linear for all other numeric labels.
    """
    return FAMILIES["logistic" if known.classes else "poisson" if known.link == "log" else "linear"]


def units(known: FederationView, scale: float | None, sizes: Ids) -> tuple[Grid, float]:
    """Return the grid to which hospitals round their sums, and the factor that multiplies labels in the fit.

    ``sizes [H]`` has the numbers of training rows of H hospitals. ``scale`` is the result of :func:`scale_of`, or None
    for a label with classes. Only linear regressions have a factor other than 1.
    """
    if scale is None or family_of(known).name == "linear":
        return Grid.of(sizes), scale or 1.0
    return Grid.of(sizes, 1 / scale), 1.0


def design(X: Floats) -> Floats:
    """Return the design matrix: a column of ones for the intercept, then the columns of ``X``."""
    return np.column_stack([np.ones(len(X)), X]).astype(np.float64, copy=False)


def as_theta(view: FederationView, beta: Floats) -> Floats:
    """Return the P coefficients ``beta`` (the intercept first) in the order of the model's parameters."""
    theta = np.zeros_like(view.initial)
    theta[view.parameters["bias"]], theta[view.parameters["weight"]] = beta[:1], beta[1:]
    return theta


def as_beta(view: FederationView, theta: Floats) -> Floats:
    """Return the P parameters ``theta`` of the model as coefficients with the intercept first."""
    return np.concatenate([theta[view.parameters["bias"]], theta[view.parameters["weight"]]])


def normal_uncertainty(view: FederationView, theta: Floats, se: Floats) -> Uncertainty:
    """Return 95 % confidence intervals of the P parameters ``theta``, with normal quantiles.

    ``se`` has the standard errors of the P coefficients, the intercept first.
    """
    undefined = Errors(np.full_like(se, np.nan), np.nan)
    return uncertainty_of(view, theta, Errors(se, float(ndtri(0.975))), undefined)


def uncertainty_of(view: FederationView, theta: Floats, model: Errors, robust: Errors) -> Uncertainty:
    """Return two confidence intervals of each of the P parameters ``theta``: model-based, and robust.

    ``model`` and ``robust`` have the standard errors of the coefficients, the intercept first.
    """
    likely, differing = as_theta(view, model.se), as_theta(view, robust.se)
    likely_half_width, away = model.quantile * likely, robust.quantile * differing
    return Uncertainty(
        likely,
        theta - likely_half_width,
        theta + likely_half_width,
        differing,
        theta - away,
        theta + away,
        effect=EFFECTS[family_of(view).name],
    )


def upper(matrix: Floats) -> Floats:
    """Return the upper triangle ``[p (p + 1) / 2]`` of a symmetric matrix ``[p, p]``."""
    return np.asarray(matrix.ravel()[_places(len(matrix))])


@lru_cache
def _places(p: int) -> Ids:
    return np.ravel_multi_index(np.triu_indices(p), (p, p))


def symmetric(triangle: Floats) -> Floats:
    """Return the symmetric matrix ``[p, p]`` with the upper triangle ``triangle``."""
    p = math.isqrt(2 * len(triangle))
    matrix = np.zeros((p, p))
    matrix[np.triu_indices(p)] = triangle
    return matrix + np.triu(matrix, 1).T


def triangle(p: int) -> tuple[int]:
    """Return the shape of the array in which the upper triangle of a matrix ``[p, p]`` is sent."""
    return (p * (p + 1) // 2,)


@dataclass(frozen=True)
class Grid:
    """A grid of multiples of ``2^-bits`` to which sums are rounded, so that hospitals' sums can be added exactly.

    The step is the smallest one with which sums over all hospitals do not overflow, but at least ``2^-MOST_BITS``.
    """

    bits: int
    largest: float

    @classmethod
    def of(cls, sizes: Ids, label: float = 1.0) -> Grid:
        """Return the fixed-point grid for H hospitals with ``sizes [H]`` rows. No absolute label exceeds ``label``, a
        power of two."""
        largest = 2.0 ** math.ceil(math.log2(ROOM * max(label, 1.0) * max(int(sizes.max(initial=1)), 1)))
        bits = 61 - math.ceil(math.log2(largest * max(len(sizes), 1)))
        if bits < 0:
            raise ValueError(f"data.label: numbers of up to {label:g} are too large for exact sums; use a larger unit")
        return cls(min(MOST_BITS, bits), largest)

    @property
    def squares(self) -> Grid:
        """The grid for products of sums, with larger steps and a larger limit."""
        moved = min(self.bits, 16)
        return Grid(self.bits - moved, self.largest * 2.0**moved)

    def send(self, kind: str, shape: tuple[int, ...] = ()) -> Send:
        """Return the declaration of a sum that hospitals round to this grid and send."""
        return Send(shape, kind=kind, bits=self.bits, largest=self.largest)

    def within(self, sums: Any) -> Any:
        """Clip ``sums`` to the range of this fixed-point grid."""
        most = self.largest * (1 - 2.0**-20)
        if np.abs(sums).max(initial=0.0) <= most:
            return sums
        return np.nan_to_num(np.clip(sums, -most, most), nan=most)

    def sent(self, sums: Mapping[str, Any], at: Context) -> dict[str, Any]:
        """Return ``sums``, clipped to the range of this fixed-point grid.

        Raises ``ValueError`` if a sum of the first call is outside this range.
        """
        sent = {name: self.within(values) for name, values in sums.items()}
        if at.round == 1 and at.turn == 0 and any(not np.array_equal(sent[name], sums[name]) for name in sums):
            raise ValueError("data.preprocessing: a column is too large for an exact sum of its squares; set standard")
        return sent


@dataclass(frozen=True)
class RegressionSums(Program):
    """A hospital's sums for a regression at the received p coefficients.

    - The sums are the loss, its negative gradient and, with ``second``, its second derivatives.
    - With ``last``, the sums for standard errors (:class:`Ending`) are included.
    - If ``information [p (p + 1) / 2]`` (an upper triangle) and the mask ``keep [p]`` of linearly independent columns
      are received, the gradient is that of Firth's penalised likelihood.

    Labels are multiplied by ``scale``.
    """

    family: str
    p: int
    grid: Grid
    last: bool = False
    second: bool = True
    scale: float = 1.0
    name: str = "regression"

    @property
    def sends(self) -> Mapping[str, Send]:
        sends = {"loss": self.grid.send("loss"), "gradient": self.grid.send("gradient", (self.p,))}
        if self.second:
            sends["hessian"] = self.grid.send("hessian", triangle(self.p))
        if self.last:
            sends["scores"] = self.grid.squares.send("scores", triangle(self.p))
            sends["pearson"] = self.grid.send("loss")
            sends["outcomes"] = self.grid.send("loss", (3,))
        return sends

    def run(self, at: Context) -> Reply:
        family, beta = FAMILIES[self.family], at.received["beta"]
        X, y = design(at.rows.X), at.rows.y.astype(np.float64)
        if family.name == "poisson" and not ((y >= 0) & (y == np.rint(y))).all():
            raise ValueError("data.label: family poisson needs whole numbers of at least 0; choose linear")
        y = y * self.scale
        counts = np.ones(len(y)) if at.rows.weights is None else at.rows.weights
        sums = family.sums(X, y, beta, counts=counts, second=self.second)
        gradient = sums.gradient
        if "information" in at.received:
            information, keep = symmetric(at.received["information"]), at.received["keep"]
            gradient = firth_gradient(family, X, y, beta, information, keep, counts)
        sent = {"loss": sums.loss, "gradient": gradient} | ({"hessian": upper(sums.hessian)} if self.second else {})
        if self.last:
            mu = family.mean(X @ beta)
            weight, squares = family.weight(mu), (y - mu) ** 2
            # A row with an exact prediction has a residual and a weight of 0.
            sent["pearson"] = float((counts * np.divide(squares, weight, np.zeros_like(mu), where=weight > 0)).sum())
            sent["outcomes"] = np.array([counts.sum(), counts @ y, counts @ family.own(y)])
        sent = self.grid.sent(sent, at)
        if self.last:
            sent["scores"] = self.grid.squares.within(upper(np.outer(sums.gradient, sums.gradient)))
        return Reply(sent)


def sums_of(rows: int, answered: Mapping[str, Floats]) -> Sums:
    """Return hospitals' answers to :class:`RegressionSums` as :class:`Sums` over ``rows`` rows."""
    return Sums(rows, float(answered["loss"]), answered["gradient"], symmetric(answered["hessian"]))
