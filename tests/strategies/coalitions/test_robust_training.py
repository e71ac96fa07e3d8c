"""Robust training: certificates, direct minimisation by other methods, and when nothing is learned."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from raysim.strategies.coalitions.robust import training
from raysim.strategies.coalitions.robust.loss import l1_losses, logistic_losses
from raysim.strategies.coalitions.robust.training import RIDGE, _balanced, train_l1, train_logistic, zero_is_optimal


def rows(seed: int = 0, n: int = 40, features: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, a real target and labels in {-1, +1}, both noisy."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, features)) + 0.3
    real = X @ rng.normal(size=features) + 0.5 + rng.laplace(size=n)
    return X, real, np.where(real + rng.normal(size=n) > 0, 1.0, -1.0)


drawn = st.tuples(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 6), st.sampled_from([0.01, 0.1, 0.4, 3.0]))


@settings(max_examples=40, deadline=None)
@given(drawn, st.booleans())
def test_l1_is_certified(case, intercept):
    X, real, _ = rows(*case[:3])
    fit = train_l1(X, real, case[3], intercept=intercept)
    assert fit.gap <= 1e-6 * (1 + fit.value)
    assert l1_losses(X, real, fit.theta[None, :], case[3]) == pytest.approx([fit.value])


@settings(max_examples=40, deadline=None)
@given(drawn, st.booleans(), st.sampled_from([0.9, 7.0, np.inf]))
def test_logistic_is_certified(case, intercept, kappa):
    X, _, y = rows(*case[:3])
    radius = min(case[3], 0.4 * kappa)
    fit = train_logistic(X, y, radius, kappa, intercept=intercept)
    assert logistic_losses(X, y, fit.theta[None, :], radius, kappa) == pytest.approx([fit.value])
    one_class = len(set(y)) == 1
    if not (one_class and intercept):
        assert fit.gap <= 1e-5


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kappa", [1.0, np.inf])
def test_no_other_method_finds_better_models(intercept, kappa):
    X, real, y = rows()
    start = np.full(4 + intercept, 0.1)
    search = {"method": "Nelder-Mead", "options": {"maxiter": 20_000, "xatol": 1e-9, "fatol": 1e-12, "adaptive": True}}
    logistic = minimize(lambda theta: logistic_losses(X, y, theta[None, :], 0.05, kappa)[0], start, **search)
    fit = train_logistic(X, y, 0.05, kappa, intercept=intercept)
    assert fit.bound <= logistic.fun + 1e-9
    assert fit.value == pytest.approx(logistic.fun, abs=1e-5)
    l1 = minimize(lambda theta: l1_losses(X, real, theta[None, :], 0.2)[0], start, **search)
    fit = train_l1(X, real, 0.2, intercept=intercept)
    assert fit.bound <= l1.fun + 1e-9
    assert fit.value == pytest.approx(l1.fun, abs=1e-5)


def test_logistic_agrees_with_proximal_gradient():
    """``θ <- prox(θ - t grad)`` with ``prox_t(v) = v max(0, 1 - t ε / |v|)``, from 0."""
    X, _, y = rows(3)
    radius, step = 0.05, 4 * len(y) / np.linalg.norm(X, 2) ** 2
    theta = np.zeros(4)
    for _ in range(20_000):
        v = theta + step * X.T @ (y / (1 + np.exp(y * (X @ theta)))) / len(y)
        theta = v * max(0.0, 1 - step * radius / np.linalg.norm(v))
    fit = train_logistic(X, y, radius, tolerance=1e-11)
    assert fit.theta == pytest.approx(theta, abs=1e-4)
    assert fit.value == pytest.approx(logistic_losses(X, y, theta[None, :], radius, np.inf)[0], abs=1e-9)


def test_zero_is_learned_from_exactly_the_radius_of_its_test_on():
    X, _, y = rows(1)
    edge = np.linalg.norm(X.T @ y) / (2 * len(y))
    above, below = train_logistic(X, y, edge * 1.0001), train_logistic(X, y, edge * 0.99)
    assert zero_is_optimal(X, y, edge * 1.0001)
    assert not zero_is_optimal(X, y, edge * 0.99)
    assert (above.theta == 0).all()
    assert above.value == above.bound == pytest.approx(np.log(2))
    assert np.linalg.norm(below.theta) > 1e-3
    assert below.value < np.log(2)


def test_zero_is_optimal_up_to_the_edge():
    """|X'y| / (2n) = 2 / 4."""
    X, y = np.array([[1.0], [-1.0]]), np.array([1.0, -1.0])
    assert [zero_is_optimal(X, y, radius) for radius in (np.nextafter(0.5, 0), 0.5)] == [False, True]


def test_with_an_intercept_a_large_radius_leaves_the_prevalence():
    X, _, y = rows(2)
    fit = train_logistic(X, y, 10.0, intercept=True)
    share = (y > 0).mean()
    assert fit.theta == pytest.approx([0, 0, 0, 0, np.log(share / (1 - share))])
    assert fit.gap == 0


def test_the_larger_side_is_scaled_down_to_balance():
    assert _balanced(np.array([3.0, 1.0, -1.0, 0.0])).tolist() == [0.75, 0.25, -1.0, 0.0]
    assert _balanced(np.array([1.0, -3.0, -1.0])).tolist() == [1.0, -0.75, -0.25]
    assert _balanced(np.array([2.0, 1.0])).tolist() == [0.0, 0.0]


def test_one_class_of_labels_is_scaled_down_to_balance_or_else_the_other_ones_flips():
    """``sum y (s/n - v) = 0``: excesses of 1/8 either way, of 7/16, and of 1/2, which all flips would just make up."""
    y, s = np.array([1.0, 1.0, -1.0, -1.0]), np.array([0.5, 0.5, 0.25, 0.25])
    for sign in (1, -1):
        balanced, flips = training._classes_balanced(sign * y, s, np.zeros(4))
        assert balanced.tolist() == [0.25, 0.25, 0.25, 0.25]
        assert not flips.any()
    two, flips = np.array([1.0, -1.0]), np.array([0.0, 0.5])
    balanced, left = training._classes_balanced(two, np.array([0.125, 0.25]), flips)
    assert (balanced.tolist(), left.tolist()) == ([0.125, 0.25], [0.0, 0.0625])
    balanced, left = training._classes_balanced(two, np.array([0.125, 0.125]), flips)
    assert (balanced.tolist(), left.tolist()) == ([0.0, 0.0], [0.0, 0.0])


def test_what_certificates_are_made_of():
    """Entropy with its limits at 0 and 1, the conjugate of the ridge, and a dual point within its radius."""
    assert training._entropy(np.array([0.0, 1.0, 0.5])) == pytest.approx(np.log(2) / 3, rel=1e-15)
    assert training._entropy(np.array([0.25])) == pytest.approx(2 * np.log(2) - 0.75 * np.log(3), rel=1e-15)
    assert training._ridge_cost(np.array([3.0, 4.0])) == pytest.approx(25 / (2 * RIDGE))
    dual = np.array([1.0, -2.0])
    assert training._scaled_into(3.0, dual, 12.0).tolist() == [0.25, -0.5]
    assert training._scaled_into(3.0, dual, 3.0).tolist() == training._scaled_into(3.0, dual, 1.0).tolist() == [1, -2]


@pytest.mark.parametrize(("at", "kept"), [(0, True), (3, False)])
def test_the_prevalence_alone_is_optimal_up_to_the_gradient_of_a_feature(at, kept):
    """Three of four are positive: the one feature has a gradient of 1/4 or 3/4 of 1/4, on either side of the radius."""
    X = np.zeros((4, 1))
    X[at] = 1.0
    fit = train_logistic(X, np.array([1.0, 1.0, 1.0, -1.0]), 0.1, intercept=True)
    assert (fit.theta[0] == 0) == kept


FEW = rows(7, n=12, features=3)
AT = (0.5, -1.0, 2.0)
"""A model of three features: ``|AT|^2`` is 5.25."""


@pytest.mark.parametrize(
    ("train", "point", "scale", "value"),
    [
        (lambda X, real, y: train_l1(X, real, 0.3, intercept=True), (*AT, 0.25), np.abs(FEW[1]).mean(), None),
        (lambda X, real, y: train_l1(X, real, 0.0, intercept=True), (*AT, 0.25), np.abs(FEW[1]).mean(), None),
        (lambda X, real, y: train_l1(0 * X, 0 * real, 0.0), AT, 1e-12, 0.5 + RIDGE / 2 * 5.25),
        (lambda X, real, y: train_logistic(0 * X, y, 0.0), AT, 1.0, np.log(2) + RIDGE / 2 * 5.25),
        (lambda X, real, y: train_logistic(X, y, 0.0, intercept=True), (*AT, 0.25), 1.0, None),
        (lambda X, real, y: train_logistic(X, y, 0.05, intercept=True), (*AT, 0.25, 3.0), 1.0, None),
        (lambda X, real, y: train_logistic(X, y, 0.05, 1.0, intercept=True), (*AT, 0.25, 3.0), 1.0, None),
        (
            lambda X, real, y: train_logistic(0 * X, y, 0.05, 1.0),
            (*AT, 3.0),
            1.0,
            0.05 * 3 + np.log(2) - 0.5 * np.log(3**2 - 5.25) + (-3 + np.sqrt(3**2 + 0.5**2)) / 2,
        ),
    ],
)
def test_smoothed_problems_have_their_own_gradient_and_hessian(monkeypatch, train, point, scale, value):
    """Against differences of the value and of the gradient, with δ = 1/2; the first δ is the labels' scale."""

    class Asked(Exception):
        pass

    def asked(*arguments):
        raise Asked(*arguments)

    monkeypatch.setattr(training, "_follow", asked)
    with pytest.raises(Asked) as caught:
        train(*FEW)
    smooth, _, _, first, _ = caught.value.args
    assert first == pytest.approx(scale, abs=0)
    objective, here = smooth(0.5), np.array(point)
    gradient, hessian = objective(here)[1]()
    steps = 1e-5 * np.eye(len(here))
    slopes = [(objective(here + h)[0] - objective(here - h)[0]) / 2e-5 for h in steps]
    curvatures = [(objective(here + h)[1]()[0] - objective(here - h)[1]()[0]) / 2e-5 for h in steps]
    assert gradient == pytest.approx(np.array(slopes), abs=1e-9)
    assert hessian == pytest.approx(np.array(curvatures), abs=1e-9)
    if value is not None:
        assert objective(here)[0] == pytest.approx(value, rel=1e-14)


def test_radius_zero_is_least_absolute_deviations():
    """The ridge, 1e-6, moves the loss by no more than itself: against the linear program."""
    X, real, _ = rows(4)
    n, F = X.shape
    solved = linprog(
        np.r_[np.zeros(F), np.full(n, 1 / n)],
        np.block([[X, -np.eye(n)], [-X, -np.eye(n)]]),
        np.r_[real, -real],
        bounds=[(None, None)] * F + [(0, None)] * n,
    )
    fit = train_l1(X, real, 0.0)
    assert fit.gap <= 1e-6
    assert fit.value == pytest.approx(solved.fun, abs=1e-5)


def test_radius_zero_is_logistic_regression_even_where_classes_are_separable():
    """A gradient of 0 with the ridge, for two rows that any large weight tells apart."""
    X, y = np.array([[1.0], [-2.0]]), np.array([1.0, -1.0])
    for intercept in (False, True):
        fit = train_logistic(X, y, 0.0, intercept=intercept)
        Z = np.column_stack([X, np.ones(2)])[:, : 1 + intercept]
        gradient = -Z.T @ (y / (1 + np.exp(y * (Z @ fit.theta)))) / 2 + RIDGE * fit.theta
        assert np.abs(gradient).max() < 1e-9
        assert fit.gap <= 1e-7


def test_more_features_than_rows_and_constant_features_are_no_obstacle():
    X, real, y = rows(5, n=3, features=8)
    X[:, 2] = 1.0
    X[:, 3] = 0.0
    for radius in (0.0, 0.1):
        assert train_l1(X, real, radius, intercept=True).gap <= 1e-5
        assert train_logistic(X, y, radius, intercept=True).gap <= 1e-5


@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_one_class(label):
    """Certain labels: odds of 2n + 1 to 1 for that class. Labels that may flip: a finite optimum."""
    X, _, _ = rows(6, n=9)
    y = np.full(9, label)
    certain = train_logistic(X, y, 0.1, intercept=True)
    assert certain.theta == pytest.approx([0, 0, 0, 0, label * np.log(19)])
    assert certain.value == pytest.approx(np.log(20 / 19))
    assert certain.bound == 0
    assert train_logistic(X, y, 0.1, 1.0, intercept=True).gap <= 1e-5
    assert train_logistic(X, y, 0.0, intercept=True).gap <= 1e-6


def test_what_cannot_be_trained_is_refused():
    X, real, y = rows()
    with pytest.raises(ValueError, match=r"radius: 0.5 must be below kappa / 2 = 0.5"):
        train_logistic(X, y, 0.5, 1.0)
    with pytest.raises(ValueError, match=r"radius: -1 is not at least 0"):
        train_l1(X, real, -1)
    with pytest.raises(ValueError, match="kappa: -1 is not greater than 0"):
        train_logistic(X, y, 0.1, -1)
    with pytest.raises(ValueError, match="X: has no rows; give at least one"):
        train_l1(X[:0], real[:0], 0.1)


def test_stages_go_on_until_a_certificate_is_within_the_tolerance(monkeypatch):
    """Of (1 + 1) / 4: a gap of .6 is not yet, one of .5 is."""
    monkeypatch.setattr(training, "_newton", lambda objective, point: point)
    for gaps, stages in (([0.6, 0.5], 2), ([0.5], 1)):
        left = list(gaps)
        fit = training._follow(
            lambda delta: None,
            lambda point, delta: training.Fit(point, 1.0, 1.0 - left.pop(0)),  # noqa: B023
            np.zeros(1),
            1.0,
            0.25,
        )
        assert (fit.gap, len(gaps) - len(left)) == (0.5, stages)
