"""Own and random intercepts from sums, against statsmodels and gpboost."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from raysim.strategies.problem import Floats
from raysim.strategies.regressions.families import LOGISTIC
from raysim.strategies.regressions.hospital_effects import eliminated, laplace
from raysim.strategies.regressions.newton_steps import fitted
from tests.strategies.regressions.tables import Table, table_g, table_t

T, G = table_t(), table_g()


def own_intercepts(table: Table) -> tuple[Floats, Floats, Floats, float]:
    """Intercepts, slopes, the slopes' system and the loss, by the steps that hospitals and server take."""
    intercepts, slopes = np.zeros(table.hospital[-1] + 1), np.zeros(2)
    for _ in range(9):
        parts = [
            eliminated(LOGISTIC, table.of(h)[0][:, 1:], table.of(h)[1], a, slopes) for h, a in enumerate(intercepts)
        ]
        S = np.sum([sent.hessian for sent, _ in parts], axis=0)
        step = np.linalg.solve(S, np.sum([sent.gradient for sent, _ in parts], axis=0))
        slopes, intercepts = slopes + step, np.array([effects.moved(step) for _, effects in parts])
    return intercepts, slopes, S, sum(sent.loss for sent, _ in parts)


def test_own_intercepts() -> None:
    intercepts, slopes, S, loss = own_intercepts(T)
    assert_allclose(intercepts, (-0.4355150344, -0.0467167947, 1.1172113891), atol=1e-9)
    assert_allclose(slopes, (1.9375732528, -1.4273866334), atol=1e-9)
    assert_allclose(np.sqrt(np.diag(np.linalg.inv(S))), (0.6693801792, 0.6635574228), atol=1e-9)
    assert loss == pytest.approx(16.7188885946, abs=1e-9)
    dummies = np.column_stack([np.eye(3)[T.hospital], T.X[:, 1:]])
    assert_allclose(fitted(LOGISTIC, dummies, T.y).beta, (*intercepts, *slopes), atol=1e-8)


def of_all(theta: Floats) -> tuple[float, Floats]:
    parts = [laplace(LOGISTIC, *G.of(h), theta[:3], theta[3]) for h in range(8)]
    return -sum(p.value for p in parts), -np.sum([p.gradient for p in parts], axis=0)


def test_random_intercepts() -> None:
    best = minimize(of_all, np.zeros(4), jac=True, method="BFGS", options={"gtol": 1e-9})
    assert_allclose(best.x[:3], (-0.1663947081, 1.3305525389, -1.0120204034), atol=1e-6)
    assert np.exp(2 * best.x[3]) == pytest.approx(2.8407519355, abs=1e-6)
    assert best.fun == pytest.approx(48.3294335522, abs=1e-8)
    modes = [laplace(LOGISTIC, *G.of(h), best.x[:3], best.x[3]).mode for h in range(8)]
    golden = (-2.16764894, 0.86926206, -0.59527108, 2.23798379, 0.54868407, -1.74091470, 1.59273768, -0.71009412)
    assert_allclose(modes, golden, atol=1e-6)


def test_the_gradient_of_random_intercepts_is_that_of_their_value() -> None:
    theta, small = np.array([0.1, 0.2, -0.3, 0.2]), 1e-6
    numeric = [(of_all(theta + e)[0] - of_all(theta - e)[0]) / (2 * small) for e in small * np.eye(4)]
    assert_allclose(of_all(theta)[1], numeric, atol=1e-6)


def test_intercepts_that_hardly_vary_give_the_pooled_fit() -> None:
    best = minimize(lambda beta: _first(of_all(np.append(beta, -9.0))), np.zeros(3), jac=True, method="BFGS")
    assert_allclose(best.x, fitted(LOGISTIC, G.X, G.y).beta, atol=1e-5)


def _first(value: tuple[float, Floats]) -> tuple[float, Floats]:
    return value[0], value[1][:3]


def test_a_mode_is_found_from_any_start() -> None:
    modes = [laplace(LOGISTIC, *G.of(0), np.zeros(3), 1.0, start).mode for start in (-30.0, 0.0, 30.0)]
    assert_allclose(modes, modes[1], atol=1e-9)
    y = G.of(0)[1]
    slope = (y - LOGISTIC.mean(np.full(len(y), modes[1]))).sum() - modes[1] * np.exp(-2.0)
    assert slope == pytest.approx(0, abs=1e-9)
