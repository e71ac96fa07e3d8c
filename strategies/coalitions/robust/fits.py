"""The client programs of CS-RCFL: a hospital's own linear model, and the robust losses of other models on its rows.

X. Konti et al., *CS-RCFL*, with the losses of :mod:`raysim.strategies.coalitions.robust.loss` and the training of
:mod:`raysim.strategies.coalitions.robust.training`. Each hospital determines its radius ε_i with a :class:`RadiusRule`.
The radius never leaves the hospital: each program computes it from the rows again.

Models are vectors of ``F`` weights and then the intercept. The loss is absolute for real labels (``classes`` 0) and
logistic for two classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import Context, Floats, Send, Statistic, at_least
from raysim.strategies.coalitions.robust.loss import check_kappa, check_radius, l1_of, logistic_of, signs
from raysim.strategies.coalitions.robust.training import train_l1, train_logistic


@dataclass(frozen=True)
class RadiusRule:
    """How a hospital chooses its radius ε from its rows."""

    radius: float
    """The radius without a grid, for hospitals that are not small."""
    small_radius: float | None
    """The radius without a grid, for small hospitals; None: the same radius."""
    small: int
    """A hospital with at most this many rows is small."""
    radii: tuple[float, ...]
    """A grid that replaces both radii; empty for no grid.

    The hospital chooses the radius whose robustly trained models have the smallest plain loss in cross-validation; ties
    go to the smaller radius. A single row cannot be validated: the largest radius is used.
    """
    folds: int
    """The number of folds of the cross-validation."""
    kappa: float
    """κ, the cost of a label change; infinite if labels are certain."""

    def check(self) -> None:
        """Raise ``ValueError`` naming the field for a value out of its range."""
        check_kappa(self.kappa)
        at_least("small", self.small, 0)
        at_least("folds", self.folds, 2)
        for field, values in self._given().items():
            for value in values:
                try:
                    check_radius(value)
                except ValueError as error:
                    raise ValueError(str(error).replace("radius", field, 1)) from None

    def check_trainable(self, classes: int, trains: bool) -> None:
        """Raise ``ValueError`` for a radius that is used in training and so large that the zero model is optimal.

        ``trains``: whether hospitals train robustly. A choice from a grid always includes robust training.
        """
        # Cross-validation trains robustly, even if the sent models are trained plainly.
        fields = self._given() if trains else {"radii": self.radii}
        for field, values in fields.items():
            for value in values:
                if classes and value > 0 and not value < self.kappa / 2:
                    raise ValueError(
                        f"{field}: {value} is not below kappa / 2 = {self.kappa / 2}, where robust training learns "
                        "nothing; lower it or raise kappa"
                    )

    def _given(self) -> dict[str, tuple[float, ...]]:
        """Return the radii in use, by field."""
        if self.radii:
            return {"radii": self.radii}
        given: dict[str, tuple[float, ...]] = {"radius": (self.radius,)}
        if self.small_radius is not None:
            given["small_radius"] = (self.small_radius,)
        return given

    def of(self, X: NDArray[Any], y: NDArray[Any], classes: int) -> float:
        """Return the radius of the hospital with rows ``X [n, F]``, ``y [n]``."""
        if self.radii:
            return self._validated(X, y, classes)
        return self.small_radius if self.small_radius is not None and len(y) <= self.small else self.radius

    def _validated(self, X: NDArray[Any], y: NDArray[Any], classes: int) -> float:
        radii = sorted(self.radii)
        if len(y) < 2:
            return radii[-1]
        # The folds are the same each time, and random, so that related rows in sequence are spread over folds.
        fold = np.random.default_rng(0).permutation(len(y)) % min(self.folds, len(y))
        losses = np.zeros(len(radii))
        for k in range(int(fold.max()) + 1):
            held = fold == k
            models = np.stack([trained(X[~held], y[~held], classes, radius, self.kappa) for radius in radii])
            predicted = X[held] @ models[:, :-1].T + models[:, -1]
            losses += held.sum() * transfer_losses(predicted, np.zeros(len(radii)), y[held], classes, 0.0, self.kappa)
        return radii[int(losses.argmin())]


def trained(X: NDArray[Any], y: NDArray[Any], classes: int, radius: float, kappa: float) -> Floats:
    """Return the model ``[F + 1]`` with the smallest robust loss on rows ``X [n, F]``. With radius 0 this is plain
    training."""
    if classes:
        return train_logistic(X, signs(y), radius, kappa, intercept=True).theta
    return train_l1(X, y, radius, intercept=True).theta


def transfer_losses(
    predicted: NDArray[Any], norms: Floats, y: NDArray[Any], classes: int, radius: float, kappa: float
) -> Floats:
    """Return the robust losses ``[M]`` of models with ``predicted [n, M]`` and ``norms [M]`` on rows with ``y [n]``."""
    if classes:
        return logistic_of(predicted, norms, signs(y), radius, kappa)
    return l1_of(predicted, norms, y, radius)


@dataclass(frozen=True)
class LinearModelFit(Statistic):
    """A hospital's own model with the smallest plain loss; with a ``rule``, the model with the smallest robust loss."""

    classes: int
    shape: tuple[int]
    rule: RadiusRule | None
    name = "model"

    def value(self, at: Context) -> Floats:
        return at.cache(self.name, lambda: self._fit(at.rows.X, at.rows.y), repr(self.rule).encode())

    def _fit(self, X: NDArray[Any], y: NDArray[Any]) -> Floats:
        if self.rule is None:
            return trained(X, y, self.classes, 0.0, np.inf)
        return trained(X, y, self.classes, self.rule.of(X, y, self.classes), self.rule.kappa)


@dataclass(frozen=True, eq=False)
class RobustTransferLoss(Statistic):
    """The robust loss of each received model, ``[M]``, with the radius of the hospital's ``rule``.

    Without a rule the radius is 0, and losses are plain. ``norms [M]`` are the models' norms without intercepts; they
    reveal nothing to a hospital that has the models.
    """

    classes: int
    rule: RadiusRule | None
    norms: Floats
    name = "transfer_losses"

    @property
    def sent(self) -> Send:
        return Send((len(self.norms),), self.name, how="each")

    def value(self, at: Context) -> Floats:
        X, y = at.rows.X, at.rows.y
        predicted = np.stack([at.model.outputs(theta) for theta in at.received["models"]], axis=1)
        radius, kappa = 0.0, np.inf
        if self.rule is not None:
            radius, kappa = self.rule.of(X, y, self.classes), self.rule.kappa
        return transfer_losses(predicted, self.norms, y, self.classes, radius, kappa)
