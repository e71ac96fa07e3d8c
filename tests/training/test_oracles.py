"""Small cases whose answer is known: worked by hand, or by a few lines of numpy beside the test."""

from __future__ import annotations

import numpy as np
import pytest

from raysim.training.base import Optimizer, Task
from raysim.training.kernels.descent import BETA1, BETA2, EPSILON, MOMENTUM
from raysim.training.models import build_model


def task(X: object, y: object, start: object, proximal: object = (), epochs: int = 1, rate: float = 0.1) -> Task:
    return Task(
        np.asarray(X, float),
        np.asarray(y, np.int64),
        np.asarray(start, float),
        proximal,
        epochs,
        rate,
        np.random.default_rng,
    )


def binary(F: int):
    return build_model("logistic_regression", F, 2, options={}, precision="float64")


def test_one_step_by_hand() -> None:
    # theta = 0: sigmoid = 1/2, residuals (-1/2, 1/2); the mean gradient is (-1/4*1 + 1/4*3, 0) = (1/2, 0)
    (theta,) = binary(1).train([task([[1], [3]], [1, 0], [0, 0])], Optimizer("sgd", 0.1, 0))
    np.testing.assert_allclose(theta, [-0.05, 0], atol=1e-15)


def test_two_momentum_steps_by_hand() -> None:
    # one row x = 0, y = 1: only the bias moves; g1 = -1/2, b1 = 1/2; v2 = .9*(-1/2) + sigmoid(1/2) - 1
    (theta,) = binary(1).train([task([[0]], [1], [0, 0], epochs=2, rate=1.0)], Optimizer("momentum", 1.0, 0))
    np.testing.assert_allclose(theta, [0, 0.5 + 0.45 + 1 - 1 / (1 + np.exp(-0.5))], atol=1e-15)


def test_adams_first_step_is_the_rate_whatever_the_gradient() -> None:
    (theta,) = binary(2).train([task([[1e-3, -40]], [1], [0, 0, 0], rate=0.01)], Optimizer("adam", 0.01, 0))
    np.testing.assert_allclose(theta, [0.01, -0.01, 0.01], rtol=1e-4)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_a_proximal_term_alone_solves_its_quadratic(optimizer: str) -> None:
    # features 0, equal classes: the loss has no gradient at bias 0, so theta follows the two proximal terms,
    # whose joint minimum is the weighted mean (.5*2 + 1.5*(-2))/2 = -1 of the weight
    F = 3
    proximal = [(0.5, np.array([2.0] * F + [0.0])), (1.5, np.array([-2.0] * F + [0.0]))]
    start, rate, epochs = np.array([1.0] * F + [0.0]), 0.1, 7
    job = task(np.zeros((2, F)), [0, 1], start, proximal, epochs, rate)
    (theta,) = binary(F).train([job], Optimizer(optimizer, rate, 0))
    x, v, m, s = 1.0, 0.0, 0.0, 0.0
    for t in range(1, epochs + 1):
        g = 2.0 * (x + 1)
        if optimizer == "adam":
            m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g * g
            x -= rate * (m / (1 - 0.9**t)) / (np.sqrt(s / (1 - 0.999**t)) + 1e-8)
        else:
            v = (0.9 if optimizer == "momentum" else 0.0) * v + g
            x -= rate * v
    np.testing.assert_allclose(theta, [x] * F + [0.0], atol=1e-13)
    if optimizer == "sgd":  # the closed form of gradient descent on a quadratic
        np.testing.assert_allclose(theta[0], -1 + (1 - rate * 2) ** epochs * 2, atol=1e-13)


def test_fedprox_on_mini_batches_in_numpy() -> None:
    """Short last batch, two epochs, one proximal terms towards the start, against sigmoid and sums written out."""
    rng = np.random.default_rng(3)
    n, F, B, rate, mu = 11, 4, 4, 0.3, 0.7
    X, y, start = rng.normal(size=(n, F)), rng.integers(0, 2, n), rng.normal(size=F + 1)
    theta = start.copy()
    for epoch in range(2):
        order = np.random.default_rng(epoch).permutation(n)
        for rows in (order[0:4], order[4:8], order[8:11]):
            residual = 1 / (1 + np.exp(-(X[rows] @ theta[:F] + theta[F]))) - y[rows]
            gradient = np.append(residual @ X[rows], residual.sum()) / len(rows)
            theta = theta - rate * (gradient + mu * (theta - start))
    (got,) = binary(F).train([task(X, y, start, [(mu, start)], 2, rate)], Optimizer("sgd", rate, B))
    np.testing.assert_allclose(got, theta, atol=1e-12)


def test_a_proximal_term_has_no_gradient_in_a_full_batch_step_from_its_centre() -> None:
    rng = np.random.default_rng(4)
    X, y, start = rng.normal(size=(6, 2)), rng.integers(0, 3, 6), rng.normal(size=9)
    model = build_model("logistic_regression", 2, 3, options={}, precision="float64")
    free, penalised = model.train([task(X, y, start), task(X, y, start, [(5.0, start)])], Optimizer("sgd", 0.1, 0))
    np.testing.assert_allclose(penalised, free, atol=1e-14)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(
    ("family", "C"), [("logistic_regression", 2), ("logistic_regression", 3), ("mlp", 2), ("mlp", 4)]
)
def test_rows_far_from_the_boundary_overflow_nothing(family: str, C: int, sign: float) -> None:
    model = build_model(family, 2, C, options={}, precision="float32")
    start = model.initial(np.random.default_rng(0)) + 0.5
    job = task([[sign * 1e6, 3e5]], [0], start, rate=1e-9)
    with np.errstate(all="raise"):
        assert np.isfinite(model.train([job], Optimizer("sgd", 1e-9, 0))).all()


def test_nothing_to_train_on_gives_the_start() -> None:
    model = build_model("mlp", 2, 2, options={"hidden": [3]}, precision="float64")
    start = model.initial(np.random.default_rng(0))
    jobs = [task(np.empty((0, 2)), [], start), task([[1, 2]], [1], start, epochs=0)]
    np.testing.assert_array_equal(model.train(jobs, Optimizer("sgd", 0.1, 32)), [start, start])
    assert model.train([], Optimizer("sgd", 0.1, 32)).shape == (0, len(start))


def test_the_numbers_of_optimisers():
    assert (MOMENTUM, BETA1, BETA2, EPSILON) == (0.9, 0.9, 0.999, 1e-8)
