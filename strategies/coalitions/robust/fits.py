"""The client programs of CS-RCFL: a hospital's own linear model, and the robust losses of other models on its rows.

X. Konti et al., *CS-RCFL*, with the losses of :mod:`raysim.strategies.coalitions.robust.loss` and the training of
:mod:`raysim.strategies.coalitions.robust.training`. The robust loss of a model is its worst mean loss over all
distributions within the distance ε_i (the radius) of hospital i's rows. The radius never leaves the hospital: each
program computes it from the rows (:class:`RadiusRule`).

A model is a vector of ``F`` weights followed by the intercept. The loss is absolute for real-valued labels (``classes``
0) and logistic for two classes.
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
    """How a hospital chooses the radius ε of the ball of distributions over which it takes the worst loss."""

    radius: float
    """The radius ε of hospitals that are not small, if ``radii`` is empty."""
    small_radius: float | None
    """The radius ε of small hospitals, if ``radii`` is empty; None: ``radius``."""
    small: int
    """A hospital with at most this many rows is small."""
    radii: tuple[float, ...]
    """The radii from which each hospital chooses; empty: ``radius`` and ``small_radius``.

    The hospital chooses the radius whose robustly trained models have the smallest plain loss in cross-validation; of
    equally good radii it chooses the smallest. A hospital with one row uses the largest radius.
    """
    folds: int
    """The number of folds of the cross-validation over ``radii``."""
    kappa: float
    """κ, the cost of a label change; infinite if labels cannot change."""

    def check(self) -> None:
        """Raise ``ValueError`` if a field's value is out of range."""
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
        """Raise ``ValueError`` if a radius ε of the ball of distributions is so large that a model of zeros is the
        optimal classifier.

        ``trains`` tells whether the sent models are trained robustly; models in cross-validation always are.
        """
        # Cross-validation trains robustly, even if the sent models are trained plainly.
        fields = self._given() if trains else {"radii": self.radii}
        for field, values in fields.items():
            for value in values:
                if classes and value > 0 and not value < self.kappa / 2:
                    raise ValueError(
                        f"{field}: {value} must be below kappa / 2 = {self.kappa / 2}, because with a larger radius "
                        "the model of zeros is optimal; lower it or raise kappa"
                    )

    def _given(self) -> dict[str, tuple[float, ...]]:
        if self.radii:
            return {"radii": self.radii}
        given: dict[str, tuple[float, ...]] = {"radius": (self.radius,)}
        if self.small_radius is not None:
            given["small_radius"] = (self.small_radius,)
        return given

    def of(self, X: NDArray[Any], y: NDArray[Any], classes: int) -> float:
        """Return the radius of the hospital whose rows have features ``X [n, F]`` and labels ``y [n]``."""
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
    """Return the linear model ``[F + 1]`` with the smallest robust loss on rows ``X [n, F]`` with labels ``y [n]``."""
    if classes:
        return train_logistic(X, signs(y), radius, kappa, intercept=True).theta
    return train_l1(X, y, radius, intercept=True).theta


def transfer_losses(
    predicted: NDArray[Any], norms: Floats, y: NDArray[Any], classes: int, radius: float, kappa: float
) -> Floats:
    """Return the robust loss of each of M models, ``[M]``, on a hospital's rows with labels ``y [n]``.

    ``predicted [n, M]`` are predictions, and ``norms [M]`` the norms of weights without intercepts.
    """
    if classes:
        return logistic_of(predicted, norms, signs(y), radius, kappa)
    return l1_of(predicted, norms, y, radius)


@dataclass(frozen=True)
class LinearModelFit(Statistic):
    """A hospital's linear model with the smallest mean loss on its rows or, with a ``rule`` for the radius, with the
    smallest robust loss."""

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


@dataclass(frozen=True)
class RobustTransferLoss(Statistic):
    """The robust loss of each of M received ``models`` on the hospital's rows, ``[M]``.

    Without a ``rule`` for the radius, these are mean losses.
    """

    classes: int
    rule: RadiusRule | None
    models: int
    name = "transfer_losses"

    @property
    def sent(self) -> Send:
        return Send((self.models,), self.name, how="each")

    def value(self, at: Context) -> Floats:
        X, y, models = at.rows.X, at.rows.y, at.received["models"]
        predicted = np.stack([at.model.outputs(theta) for theta in models], axis=1)
        radius, kappa = 0.0, np.inf
        if self.rule is not None:
            radius, kappa = self.rule.of(X, y, self.classes), self.rule.kappa
        norms = np.linalg.norm(models[:, :-1], axis=1)
        return transfer_losses(predicted, norms, y, self.classes, radius, kappa)
