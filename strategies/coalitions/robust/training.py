"""Training of a linear model against the worst distribution near a hospital's rows, with a certified optimality gap.

X. Konti et al., *CS-RCFL*, the robust local problems (4) and (5). :mod:`raysim.strategies.coalitions.robust.loss`
derives their objectives. ε is the radius, and κ the cost of a label change. θ are the model's weights; the intercept is
not part of the norm |θ|. ``X [n, F]`` are features; a row x has the label y and the margin ``m = y x.θ``.

- absolute loss: ``min mean |y - x.θ| + ε sqrt(|θ|^2 + 1)``. Its dual is ``max u.y + sqrt(ε^2 - |X'u|^2)`` over
  ``u [n]`` with ``|u_p| <= 1/n`` for each row p and ``|X'u| <= ε``. With an intercept, also ``sum u = 0``.
- logistic loss: for κ = inf, ``min mean softplus(-m) + ε |θ|``; for finite κ,
  ``min over θ, a >= |θ| of a ε + mean softplus(-m) + mean max(0, m - a κ)``. The dual of each maximises the mean
  entropy of probabilities ``s [n]``. A second dual variable, ``v [n]`` in [0, 1/n], is the mass moved to flipped
  labels; it is 0 for κ = inf. The constraint is ``|X'(y (s/n - v))| <= ε - κ sum v``. With an intercept, also
  ``sum y (s/n - v) = 0``.

Deviation: the paper solves conic programs. Here a number δ smooths the kinks of the objective and, for the logistic
loss, scales a barrier for ``a >= |θ|``. Newton's method solves the problem for smaller and smaller δ. The derivatives
of the smoothed losses give a dual point, and thereby a lower bound on the optimum.

With radius 0 the optimum does not exist for separable rows, and it is not unique if there are more features than rows.
``RIDGE/2 |θ|^2``, intercept included, is therefore added to the objective.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import Floats
from raysim.strategies.coalitions.robust.loss import check_kappa, check_radius, l1_losses, logistic_losses

RIDGE = 1e-6
"""The weight of the ridge penalty for radius 0."""
SHRINK = 0.1
"""The factor by which the smoothing δ shrinks from one approximation of the loss to the next."""
STAGES = 12
"""The largest number of iterations, each with another smooth approximation of the loss."""
STEPS = 100
"""The largest number of Newton steps in each minimisation."""


@dataclass(frozen=True, eq=False)
class Fit:
    """A trained model, with a lower bound on the objective of any model."""

    theta: Floats
    """The model, ``[P]``."""
    value: float
    """The objective's value at this model."""
    bound: float
    """A lower bound on the objective's value at any model."""

    @property
    def gap(self) -> float:
        """The difference between ``value`` and ``bound``, at least 0."""
        return max(0.0, self.value - self.bound)


def train_l1(
    X: NDArray[Any], y: NDArray[Any], radius: float, *, intercept: bool = False, tolerance: float = 1e-7
) -> Fit:
    """Return the linear model with the smallest robust absolute loss for features ``X [n, F]`` and labels ``y [n]``.

    Training ends when the objective is proven to exceed the minimum by at most ``tolerance * (1 + objective)``, or
    after :data:`STAGES` iterations.
    """
    check_radius(radius)
    Z, y = _design(X, y, intercept)
    n, P = Z.shape
    F = X.shape[1]
    free = np.arange(P) >= F
    scale = max(float(np.abs(y).mean()), 1e-12)

    def fit(theta: Floats, delta: float) -> Fit:
        residual = y - Z @ theta
        u = residual / np.sqrt(residual**2 + delta**2) / n
        value = float(l1_losses(X, y, theta[None, :], radius)[0])
        if radius == 0:
            return Fit(theta, value + RIDGE / 2 * float(theta @ theta), float(u @ y) - _ridge_cost(Z.T @ u))
        u = _balanced(u) if intercept else u
        norm = float(np.linalg.norm(X.T @ u))
        left = float(np.sqrt(radius**2 - min(norm, radius) ** 2))
        return Fit(theta, value, float(_scaled_into(radius, u, norm) @ y) + left)

    def smooth(delta: float) -> Objective:
        def objective(theta: Floats) -> tuple[float, Callable[[], tuple[Floats, Floats]]]:
            residual = y - Z @ theta
            root = np.sqrt(residual**2 + delta**2)
            w = np.where(free, 0.0, theta)
            length = np.sqrt(w @ w + 1.0)
            value = root.mean() + radius * length
            ridge = RIDGE if radius == 0 else 0.0

            def derivatives() -> tuple[Floats, Floats]:
                gradient = -Z.T @ (residual / root) / n + radius * w / length + ridge * theta
                hessian = (Z.T * (delta**2 / root**3 / n)) @ Z + ridge * np.eye(P)
                hessian += radius * (np.diag(np.where(free, 0.0, 1.0)) / length - np.outer(w, w) / length**3)
                return gradient, hessian

            return float(value + ridge / 2 * theta @ theta), derivatives

        return objective

    return _follow(smooth, fit, np.zeros(P), scale, tolerance)


def train_logistic(
    X: NDArray[Any],
    y: NDArray[Any],
    radius: float,
    kappa: float = np.inf,
    *,
    intercept: bool = False,
    tolerance: float = 1e-7,
) -> Fit:
    """Return the linear model with the smallest robust logistic loss for ``X [n, F]`` and labels ``y [n]``, -1 or +1.

    Training ends as in :func:`train_l1`. ``kappa`` is the cost of a label change; with infinity, labels cannot change.
    Raises ``ValueError`` if a positive ``radius`` is not below ``kappa / 2``, because half of the labels could be
    flipped. If no optimum exists because all rows have one class, the intercept is set so that the model predicts odds
    of ``2n + 1`` to 1 for this class.
    """
    check_radius(radius)
    check_kappa(kappa)
    if radius > 0 and not radius < kappa / 2:
        raise ValueError(
            f"radius: {radius} must be below kappa / 2 = {kappa / 2}, because with a larger radius the model of zeros "
            "is optimal; lower it or raise kappa"
        )
    Z, y = _design(X, y, intercept)
    if radius == 0:
        return _plain_logistic(Z, y, tolerance)
    zero = _without_features(X, y, radius, intercept) if np.isinf(kappa) else None
    return zero or _robust_logistic(X, Z, y, radius, kappa, intercept, tolerance)


def zero_is_optimal(X: NDArray[Any], y: NDArray[Any], radius: float) -> bool:
    """Return whether, of all models without an intercept, the zero model has the smallest robust logistic loss for
    κ = inf."""
    return bool(np.linalg.norm(X.T @ y) / (2 * len(y)) <= radius)


Objective = Callable[[Floats], tuple[float, Callable[[], tuple[Floats, Floats]]]]
"""A function that returns the objective at a point (infinite outside the domain), and a function that computes the
gradient and the Hessian at this point."""


def _plain_logistic(Z: Floats, y: Floats, tolerance: float) -> Fit:
    n, P = Z.shape
    signed = Z * y[:, None]

    def objective(theta: Floats) -> tuple[float, Callable[[], tuple[Floats, Floats]]]:
        margins = signed @ theta

        def derivatives() -> tuple[Floats, Floats]:
            s = _sigmoid(-margins)
            hessian = (signed.T * (s * (1 - s) / n)) @ signed + RIDGE * np.eye(P)
            return RIDGE * theta - signed.T @ s / n, hessian

        return float(np.logaddexp(0, -margins).mean() + RIDGE / 2 * theta @ theta), derivatives

    def fit(theta: Floats, delta: float) -> Fit:
        margins = signed @ theta
        s = _sigmoid(-margins)
        value = float(np.logaddexp(0, -margins).mean() + RIDGE / 2 * theta @ theta)
        return Fit(theta, value, _entropy(s) - _ridge_cost(signed.T @ s / n))

    return _follow(lambda delta: objective, fit, np.zeros(P), 1.0, tolerance)


def _without_features(X: NDArray[Any], y: Floats, radius: float, intercept: bool) -> Fit | None:
    """Return a model whose feature weights are 0 if it is (nearly) optimal for κ = inf, else None."""
    n, positive = len(y), float((y > 0).mean())
    if not intercept:
        zero = np.zeros(X.shape[1])
        return Fit(zero, float(np.log(2)), float(np.log(2))) if zero_is_optimal(X, y, radius) else None
    theta = np.zeros(X.shape[1] + 1)
    if positive in (0.0, 1.0):
        theta[-1] = np.log(2 * n + 1) * (2 * positive - 1)
        return Fit(theta, float(np.log1p(1 / (2 * n + 1))), 0.0)
    theta[-1] = np.log(positive / (1 - positive))
    if np.linalg.norm(X.T @ (y * _sigmoid(-y * theta[-1]))) / n > radius:
        return None
    value = float(np.logaddexp(0, -y * theta[-1]).mean())
    return Fit(theta, value, value)


def _robust_logistic(
    X: NDArray[Any], Z: Floats, y: Floats, radius: float, kappa: float, intercept: bool, tolerance: float
) -> Fit:
    """Minimise the robust logistic loss over the weights θ and the transport price a.

    The barrier ``-δ log(a^2 - |θ|^2)`` keeps ``a`` above ``|θ|``. The kink of ``max(0, m - a κ)``, with m the margin of
    a row, is smoothed with the same δ.
    """
    n, P = Z.shape
    signed = Z * y[:, None]
    weights = (np.arange(P) < X.shape[1]).astype(np.float64)
    certain = np.isinf(kappa)
    # m - a κ is linear in (θ, a).
    excess_of = np.column_stack([signed, np.full(n, 0.0 if certain else -kappa)])

    def flips(point: Floats, delta: float) -> tuple[Floats, Floats]:
        """Return ``e = m - a κ`` and ``sqrt(e^2 + δ^2)``; half of their sum is a smooth version of ``max(0, e)``."""
        excess = excess_of @ point
        return excess, np.sqrt(excess**2 + delta**2)

    def smooth(delta: float) -> Objective:
        def objective(point: Floats) -> tuple[float, Callable[[], tuple[Floats, Floats]]]:
            theta, a = point[:-1], point[-1]
            w = weights * theta
            inside = a * a - w @ w
            if a <= 0 or inside <= 0:
                return np.inf, lambda: (point, np.empty(0))
            margins = signed @ theta
            excess, root = flips(point, delta)
            value = a * radius + np.logaddexp(0, -margins).mean() - delta * np.log(inside)
            if not certain:
                value += (excess + root).mean() / 2

            def derivatives() -> tuple[Floats, Floats]:
                s = _sigmoid(-margins)
                gradient = np.append(-signed.T @ s / n, radius)
                hessian = np.zeros((P + 1, P + 1))
                hessian[:P, :P] = (signed.T * (s * (1 - s) / n)) @ signed
                slope = np.append(2 * w, -2 * a)  # of -inside
                gradient += delta * slope / inside
                hessian += delta * (np.diag(np.append(2 * weights, -2.0)) / inside + np.outer(slope, slope) / inside**2)
                if not certain:
                    gradient += excess_of.T @ (1 + excess / root) / (2 * n)
                    hessian += (excess_of.T * (delta**2 / root**3 / (2 * n))) @ excess_of
                return gradient, hessian

            return float(value), derivatives

        return objective

    def fit(point: Floats, delta: float) -> Fit:
        theta = point[:-1]
        s = _sigmoid(-signed @ theta)
        v = np.zeros(n)
        if not certain:
            excess, root = flips(point, delta)
            v = (1 + excess / root) / (2 * n)
        if intercept:
            s, v = _classes_balanced(y, s, v)
        needed = float(np.linalg.norm(X.T @ (y * (s / n - v)))) + (0.0 if certain else kappa * float(v.sum()))
        value = float(logistic_losses(X, y, theta[None, :], radius, kappa)[0])
        return Fit(theta, value, _entropy(_scaled_into(radius, s, needed)))

    return _follow(smooth, fit, np.append(np.zeros(P), 1.0), 1.0, tolerance)


def _follow(
    smooth: Callable[[float], Objective],
    fit: Callable[[Floats, float], Fit],
    point: Floats,
    scale: float,
    tolerance: float,
) -> Fit:
    """Solve at most :data:`STAGES` problems with the smoothing δ = ``scale``, ``scale / 10``, ... until the gap is at
    most ``tolerance * (1 + |value|)``."""
    best: Fit | None = None
    delta = scale
    for _ in range(STAGES):
        point = _newton(smooth(delta), point)
        latest = fit(point, delta)
        if best is not None:
            # The value or the bound of an earlier certificate may be better.
            better = latest if latest.value <= best.value else best
            latest = Fit(better.theta, better.value, max(latest.bound, best.bound))
        best = latest
        if best.gap <= tolerance * (1 + abs(best.value)):
            break
        delta *= SHRINK
    assert best is not None
    return best


def _newton(objective: Objective, point: Floats) -> Floats:
    """Minimise a convex objective by damped Newton steps, then by full steps while they reduce the gradient's norm.

    The full steps are needed near kinks, where float64 no longer resolves a decrease of the objective.
    """
    value, derivatives = objective(point)
    gradient, hessian = derivatives()
    for _ in range(STEPS):
        # A negligible addend that makes the system solvable if rows do not determine all directions.
        hessian[np.diag_indices_from(hessian)] += 1e-13 * hessian.trace() / len(hessian) + 1e-300
        step = np.linalg.solve(hessian, -gradient)
        decrease, rounding = -float(gradient @ step), 1e-14 * (1 + abs(value))
        length = 1.0
        trial, (trial_value, derivatives) = point + step, objective(point + step)
        while trial_value > value - 0.1 * length * decrease + rounding and length > 1e-10:
            length /= 2
            trial = point + length * step
            trial_value, derivatives = objective(trial)
        if not trial_value <= value + rounding:
            break
        trial_gradient, hessian = derivatives()
        if decrease <= rounding and not np.linalg.norm(trial_gradient) < np.linalg.norm(gradient):
            break
        point, value, gradient = trial, trial_value, trial_gradient
    return point


def _design(X: NDArray[Any], y: NDArray[Any], intercept: bool) -> tuple[Floats, Floats]:
    if not len(y):
        raise ValueError("X: has no rows; give at least one")
    Z = np.asarray(X, np.float64)
    return (np.column_stack([Z, np.ones(len(Z))]) if intercept else Z), np.asarray(y, np.float64)


def _scaled_into(radius: float, dual: Floats, needed: float) -> Floats:
    """Return the point ``dual``, which is feasible for the radius ``needed``, scaled down to be feasible for
    ``radius``."""
    return dual * (radius / needed) if needed > radius else dual


def _balanced(u: Floats) -> Floats:
    """Return ``u`` with its positive or its negative entries scaled down so that the sum is 0."""
    up, down = float(u[u > 0].sum()), float(-u[u < 0].sum())
    least = min(up, down)
    return np.where(u > 0, u * (least / up if up else 0.0), u * (least / down if down else 0.0))


def _classes_balanced(y: Floats, s: Floats, v: Floats) -> tuple[Floats, Floats]:
    """Return dual variables with ``sum y (s/n - v) = 0``: ``s`` or ``v`` is scaled down for one class, or both are
    0."""
    excess = float(y @ (s / len(y) - v))
    over = y * excess > 0
    if (total := float(s[over].sum()) / len(y)) > abs(excess):
        return np.where(over, s * (1 - abs(excess) / total), s), v
    if (total := float(v[~over].sum())) > abs(excess):
        return s, np.where(over, v, v * (1 - abs(excess) / total))
    return np.zeros_like(s), np.zeros_like(v)


def _sigmoid(z: Floats) -> Floats:
    return np.asarray(np.exp(-np.logaddexp(0, -z)))


def _entropy(s: Floats) -> float:
    inside = np.clip(s, 1e-300, 1 - 1e-16)
    return float(np.where((s > 0) & (s < 1), -s * np.log(inside) - (1 - s) * np.log1p(-inside), 0.0).mean())


def _ridge_cost(term: Floats) -> float:
    """Return ``max over θ of term.θ - RIDGE/2 |θ|^2``, by which the ridge lowers the bound of a dual point."""
    return float(term @ term) / (2 * RIDGE)
