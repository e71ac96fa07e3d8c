"""Closed forms of the worst loss of a model at a hospital whose distribution may differ a little from its rows.

X. Konti et al., *CS-RCFL*: the robust transfer loss ``L_ij`` is the largest mean loss of model ``j`` over a
Wasserstein-1 ball of radius ε_i around the empirical distribution of hospital ``i``'s rows. Distances are l2 norms. The
intercept enters margins and residuals, but not norms, because its feature is 1 in every distribution.

Deviation: equation (13) has θ_i in the residual, a misprint for the θ_j of equation (12). The paper does not give the
cost κ of a label change.

Shapes: features of n rows are ``X [n, F]``. Models are ``[M, P]`` with P = F, or with P = F + 1 if the last scalar is
an intercept. A hospital without rows has no loss: NaN for every model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import Floats, at_least


def l1_losses(X: NDArray[Any], y: NDArray[Any], models: Floats, radius: float) -> Floats:
    """Return the robust absolute loss of each of M models θ_j, ``[M]``.

    It is ``ε sqrt(|θ_j|^2 + 1) + mean |y - x.θ_j|`` with ε the ``radius`` (eq. 12 and 13). The features of n rows are
    ``X [n, F]``, and their real-valued labels are ``y [n]``.
    """
    return l1_of(*_predicted(X, models), y, radius)


def l1_of(predicted: NDArray[Any], norms: Floats, y: NDArray[Any], radius: float) -> Floats:
    """Return the losses of :func:`l1_losses` from predictions ``[n, M]`` and the norms of weights ``[M]``."""
    check_radius(radius)
    if not len(y):
        return np.full(len(norms), np.nan)
    residuals = np.abs(np.asarray(y, np.float64)[:, None] - predicted)
    return np.asarray(radius * np.sqrt(norms**2 + 1.0) + residuals.mean(axis=0))


def logistic_losses(X: NDArray[Any], y: NDArray[Any], models: Floats, radius: float, kappa: float = 1.0) -> Floats:
    """Return the robust logistic loss of each of M models θ, ``[M]``, for labels -1 or +1.

    The loss is the worst mean loss over all distributions to which the rows can be moved at a mean cost of at most ε
    (``radius``). Moving one row from ``(x, y)`` to ``(x', y')`` costs ``|x - x'| + κ |y - y'| / 2``. With margins
    ``m_p = y_p x_p.θ`` the dual of the worst case is

        ``L = min over a >= |θ| of a ε + mean softplus(-m_p) + mean max(0, m_p - a κ)``,

    because flipping the label of row p raises its loss by ``m_p``. With κ = inf labels cannot change, and
    ``L = ε |θ| + mean softplus(-m)``. If ε >= κ/2, half of the labels can be flipped, and every loss is at least log 2.
    """
    return logistic_of(*_predicted(X, models), y, radius, kappa)


def logistic_of(predicted: NDArray[Any], norms: Floats, y: NDArray[Any], radius: float, kappa: float) -> Floats:
    """Return the losses of :func:`logistic_losses` from predictions ``[n, M]`` and the norms of weights ``[M]``."""
    check_radius(radius)
    check_kappa(kappa)
    if not len(y):
        return np.full(len(norms), np.nan)
    margins = np.asarray(y, np.float64)[:, None] * predicted
    losses: Floats = np.logaddexp(0.0, -margins).mean(axis=0)
    if np.isinf(kappa):
        losses += radius * norms
        return losses
    prices = transport_prices(margins, norms, radius, kappa)
    losses += radius * prices + np.maximum(0.0, margins - kappa * prices).mean(axis=0)
    return losses


def transport_prices(margins: Floats, norms: Floats, radius: float, kappa: float) -> Floats:
    """Return the price ``a [M]`` that minimises the dual in :func:`logistic_losses` for each model; κ (``kappa``) must
    be finite.

    ``margins`` are ``[n, M]``, and ``norms [M]`` are the models' |θ|. As ``a`` rises, the dual stops falling once at
    most ``r = floor(n ε / κ)`` margins exceed ``a κ``, with ε the ``radius``. With margins in decreasing order, the
    minimiser is ``max(|θ|, m_(r+1) / κ)``, or ``|θ|`` if r >= n.
    """
    n = len(margins)
    # If n ε / κ is a whole number the slope is 0, so that rounding it in either direction is harmless.
    above = n * radius / kappa + 1e-12
    if above >= n:
        return norms.copy()
    r = int(above)
    threshold = np.partition(margins, n - 1 - r, axis=0)[n - 1 - r]
    return np.asarray(np.maximum(norms, np.maximum(threshold, 0.0) / kappa))


def signs(y: NDArray[Any]) -> Floats:
    """Return -1 for class 0 and +1 for class 1, ``[n]``."""
    return 2.0 * np.asarray(y, np.float64) - 1.0


def check_radius(radius: float) -> None:
    """Raise ``ValueError`` unless ``0 <= radius < inf``."""
    at_least("radius", radius, 0.0)


def check_kappa(kappa: float) -> None:
    """Raise ``ValueError`` unless ``0 < kappa <= inf``."""
    if not kappa > 0:
        raise ValueError(f"kappa: {kappa} is not greater than 0; give inf if labels are certain")


def _predicted(X: NDArray[Any], models: Floats) -> tuple[Floats, Floats]:
    """Return ``x.θ`` of every row and model, ``[n, M]``, and the models' norms without their intercepts, ``[M]``."""
    features = X.shape[1]
    if models.shape[1] not in (features, features + 1):
        raise ValueError(
            f"models: {models.shape[1]} parameters do not fit {features} features; give {features}, "
            "or one more for an intercept"
        )
    weights = models[:, :features]
    # The sum is empty without an intercept.
    predicted = np.asarray(X, np.float64) @ weights.T + models[:, features:].sum(axis=1)
    return predicted, np.sqrt((weights**2).sum(axis=1))
