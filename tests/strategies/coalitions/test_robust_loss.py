"""Robust transfer losses: golden numbers, their duals minimised directly, and the properties that they must have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize_scalar

from raysim.strategies.coalitions.robust.loss import l1_losses, logistic_losses, signs, transport_prices

X = np.array([[1.0, 2.0], [-1.0, 0.5], [0.3, -1.2], [2.0, 1.0]])
CLASSES = np.array([1, 0, 0, 1])
THETA = np.array([[0.5, -0.25]])
REAL = np.array([1.0, 0.0, -0.5, 2.0])


@pytest.mark.parametrize(
    ("radius", "kappa", "loss", "price"),
    [
        (0.0, 1.0, 0.6129919527372047, 0.75),
        (0.02, 1.0, 0.6279919527372048, 0.75),
        (0.3, 1.0, 0.8317419527372047, 0.625),
        (0.2, 0.5, 0.8942419527372047, 1.25),
        (0.8, 1.0, 1.124447051049689, 0.5590169943749475),
        (0.1, np.inf, 0.6688936521746995, 0.5590169943749475),
    ],
)
def test_logistic_golden_numbers(radius, kappa, loss, price):
    y = signs(CLASSES)
    assert logistic_losses(X, y, THETA, radius, kappa) == pytest.approx([loss], abs=1e-15)
    if np.isfinite(kappa):
        norms = np.linalg.norm(THETA, axis=1)
        assert transport_prices(y[:, None] * (X @ THETA.T), norms, radius, kappa) == pytest.approx([price], abs=1e-15)


@pytest.mark.parametrize(("radius", "loss"), [(0.0, 0.95625), (0.5, 1.5290719618694801), (1.0, 2.10189392373896)])
def test_l1_golden_numbers(radius, loss):
    assert l1_losses(X, REAL, THETA, radius) == pytest.approx([loss], abs=1e-14)


cases = st.tuples(
    st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 4), st.booleans(), st.floats(0, 2), st.floats(0.05, 4)
)


def sampled(seed, n, features, intercept):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, features))
    y = rng.choice([-1.0, 1.0], n)
    return rows, y, rng.normal(size=(5, features + intercept)) * rng.choice([0.1, 1.0, 5.0])


@settings(deadline=None)
@given(cases)
def test_the_closed_form_is_the_minimum_of_the_dual(case):
    """The dual in one variable, ``a >= |θ|``, minimised by golden section and at its ends."""
    seed, n, features, intercept, radius, kappa = case
    rows, y, models = sampled(seed, n, features, intercept)
    closed_form = logistic_losses(rows, y, models, radius, kappa)
    for theta, loss in zip(models, closed_form, strict=True):
        w, b = theta[:features], theta[features:].sum()
        margins, low = y * (rows @ w + b), np.linalg.norm(w)
        high = max(low, np.abs(margins).max() / kappa) + 1

        def dual(a, margins=margins):
            return a * radius + np.logaddexp(0, -margins).mean() + np.maximum(0, margins - a * kappa).mean()

        best = min(dual(low), minimize_scalar(dual, bounds=(low, high), method="bounded", options={"xatol": 1e-10}).fun)
        assert loss <= best + 1e-9
        assert loss >= best - 1e-6


def test_flips_and_moves_on_a_grid_stay_below_the_logistic_loss_and_come_near():
    """The worst law itself: mass moved from rows to points of a grid with either label, a linear program."""
    rows, y, theta = np.array([[-1.0], [0.5], [2.0]]), np.array([-1.0, 1.0, -1.0]), np.array([[0.8]])
    grid = np.linspace(-30, 30, 601)
    points, labels = np.tile(grid, 2), np.repeat([-1.0, 1.0], len(grid))
    price = np.abs(rows - points) + 0.7 * np.abs(y[:, None] - labels) / 2
    gain = np.tile(np.logaddexp(0, -labels * points * 0.8), 3)
    rows_kept = np.kron(np.eye(3), np.ones(len(points)))
    solved = linprog(-gain, price.reshape(1, -1), [0.3], rows_kept, np.full(3, 1 / 3))
    loss = float(logistic_losses(rows, y, theta, 0.3, 0.7)[0])
    assert -solved.fun <= loss + 1e-9
    assert -solved.fun == pytest.approx(loss, abs=5e-3)


def test_moves_stay_below_the_l1_loss_and_reach_it():
    """All mass moved along ``(θ, -1)`` away from its residual reaches ``mean |r| + ε sqrt(|θ|^2 + 1)``."""
    residual = REAL - X @ THETA[0]
    away = np.append(-THETA[0], 1.0) / np.hypot(np.linalg.norm(THETA[0]), 1.0)
    moved = np.column_stack([X, REAL]) + 0.4 * np.sign(residual)[:, None] * away
    assert l1_losses(moved[:, :2], moved[:, 2], THETA, 0.0) == pytest.approx(l1_losses(X, REAL, THETA, 0.4))


@settings(deadline=None)
@given(cases)
def test_monotone_in_radius_and_kappa_and_plain_at_radius_zero(case):
    seed, n, features, intercept, radius, kappa = case
    rows, y, models = sampled(seed, n, features, intercept)
    loss = logistic_losses(rows, y, models, radius, kappa)
    assert (logistic_losses(rows, y, models, radius + 0.1, kappa) >= loss - 1e-12).all()
    assert (logistic_losses(rows, y, models, radius, kappa * 1.5) <= loss + 1e-12).all()
    assert (logistic_losses(rows, y, models, radius, np.inf) <= loss + 1e-12).all()
    assert (l1_losses(rows, y, models, radius + 0.1) >= l1_losses(rows, y, models, radius)).all()
    z = rows @ models[:, :features].T + models[:, features:].sum(axis=1)
    plain = (np.logaddexp(0, z) - ((y[:, None] + 1) / 2) * z).mean(axis=0)  # y in {0, 1}: softplus(z) - y z
    assert logistic_losses(rows, y, models, 0.0, kappa) == pytest.approx(plain, abs=1e-12)
    assert logistic_losses(rows, y, models, 0.0, np.inf) == pytest.approx(plain, abs=1e-12)


@settings(deadline=None)
@given(cases)
def test_a_radius_of_half_kappa_leaves_no_model_below_log_2(case):
    seed, n, features, intercept, _, kappa = case
    rows, y, models = sampled(seed, n, features, intercept)
    models[0] = 0.0
    loss = logistic_losses(rows, y, models, kappa / 2, kappa)
    assert (loss >= np.log(2) - 1e-12).all()
    assert loss[0] == pytest.approx(np.log(2))


@settings(deadline=None)
@given(cases)
def test_lemma_4_the_mean_model_is_no_worse_than_the_mean_of_losses(case):
    seed, n, features, intercept, radius, kappa = case
    rows, y, models = sampled(seed, n, features, intercept)
    mean = models.mean(axis=0, keepdims=True)
    for losses in (
        lambda m: logistic_losses(rows, y, m, radius, kappa),
        lambda m: logistic_losses(rows, y, m, radius, np.inf),
        lambda m: l1_losses(rows, y, m, radius),
    ):
        assert losses(mean)[0] <= losses(models).mean() + 1e-12


def test_the_intercept_is_not_transported():
    """With weights 0 the radius costs nothing where labels are certain, whatever the intercept."""
    models = np.array([[0.0, 0.0, 3.0]])
    for radius in (0.0, 5.0):
        assert logistic_losses(X, signs(CLASSES), models, radius, np.inf) == pytest.approx(
            np.logaddexp(0, -3 * signs(CLASSES)).mean()
        )
        assert l1_losses(X, REAL, models, radius) == pytest.approx(radius + np.abs(REAL - 3).mean())


def test_a_hospital_without_rows_has_no_losses():
    empty = np.empty((0, 2))
    assert np.isnan(logistic_losses(empty, np.empty(0), THETA, 0.1)).all()
    assert np.isnan(l1_losses(empty, np.empty(0), THETA, 0.1)).all()


@pytest.mark.parametrize(
    ("radius", "kappa", "message"),
    [
        (-0.1, 1.0, "radius: -0.1 is not at least 0"),
        (np.nan, 1.0, "radius: nan is not at least 0"),
        (np.inf, 1.0, "radius: inf is not finite"),
        (0.1, 0.0, "kappa: 0.0 is not greater than 0"),
        (0.1, np.nan, "kappa: nan is not greater than 0"),
    ],
)
def test_radius_and_kappa_out_of_range_are_refused(radius, kappa, message):
    with pytest.raises(ValueError, match=message):
        logistic_losses(X, signs(CLASSES), THETA, radius, kappa)


def test_models_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="models: 5 parameters do not fit 2 features"):
        l1_losses(X, REAL, np.zeros((1, 5)), 0.1)
