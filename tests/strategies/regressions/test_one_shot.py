"""One-shot combinations of hospitals' own fits, against figures computed elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from raysim.strategies.problem import Floats
from raysim.strategies.regressions.families import LINEAR, LOGISTIC
from raysim.strategies.regressions.newton_steps import fitted
from raysim.strategies.regressions.one_shot import Information, Surrogate, information, stacked
from tests.strategies.regressions.tables import table_t

T = table_t()


def of_all(X: Floats) -> Information:
    parts = []
    for h in range(3):
        rows = T.hospital == h
        parts.append(information(LOGISTIC, X[rows], T.y[rows], fitted(LOGISTIC, X[rows], T.y[rows])))
    return Information(np.sum([p.weighted for p in parts], axis=0), np.sum([p.total for p in parts], axis=0))


def test_the_inverse_variance_mean() -> None:
    mean, covariance = of_all(T.X).combined()
    assert_allclose(mean, (0.1632951800, 1.5449320571, -1.0413610157), atol=1e-9)
    assert_allclose(np.sqrt(np.diag(covariance)), (0.4541016972, 0.6466264625, 0.6624628135), atol=1e-9)


def test_a_hospital_that_cannot_estimate_a_coefficient_adds_nothing_to_it() -> None:
    flag = (np.arange(36) % 5 == 4) & (T.hospital < 2)
    mean, _ = of_all(np.column_stack([T.X, flag])).combined()
    assert_allclose(mean, (0.1480952984, 1.5672829749, -1.1060576326, 0.7384118587), atol=1e-9)
    nobody, covariance = of_all(np.column_stack([T.X, np.zeros(36)])).combined()
    assert nobody[3] == 0
    assert np.isnan(covariance[3]).all()


def test_equal_information_gives_the_mean() -> None:
    known = np.diag([2.0, 3.0])
    estimates = np.array([[1.0, 2.0], [3.0, -1.0]])
    both = Information((known @ estimates.T).sum(axis=1), 2 * known)
    assert_allclose(both.combined()[0], estimates.mean(axis=0))


GOLDEN = [
    ((0.2263191363, 1.8382595374, -1.2927015409), (0.2099195763, 1.8331939925, -1.3155702845)),
    ((0.2052155513, 1.8226480215, -1.3115775644), (0.2101003850, 1.8240082542, -1.3052660275)),
    ((0.2041049059, 1.8208843332, -1.3187148988), (0.2099043101, 1.8195298588, -1.3006626478)),
]


@pytest.mark.parametrize("lead", range(3))
def test_the_lead_maximises_its_likelihood_with_the_gradients_of_all(lead: int) -> None:
    at, _ = of_all(T.X).combined()
    everybody, own = LOGISTIC.sums(T.X, T.y, at), LOGISTIC.sums(*T.of(lead), at)
    for second, golden in zip((False, True), GOLDEN[lead], strict=True):
        fit = Surrogate.of(at, everybody, own, second=second).fitted(LOGISTIC, *T.of(lead))
        assert_allclose(fit.beta, golden, atol=1e-8)


def test_a_lead_with_all_rows_or_a_linear_model_gives_the_pooled_fit() -> None:
    at, pooled = np.array([0.1, 0.9, -0.4]), fitted(LOGISTIC, T.X, T.y).beta
    everybody = LOGISTIC.sums(T.X, T.y, at)
    assert_allclose(
        Surrogate.of(at, everybody, everybody, second=False).fitted(LOGISTIC, T.X, T.y).beta, pooled, atol=1e-9
    )
    rows = T.hospital == 1
    linear = Surrogate.of(at, LINEAR.sums(T.X, T.real, at), LINEAR.sums(T.X[rows], T.real[rows], at), second=True)
    assert_allclose(linear.fitted(LINEAR, T.X[rows], T.real[rows]).beta, fitted(LINEAR, T.X, T.real).beta, atol=1e-9)


def test_stacked_weights() -> None:
    own = [fitted(LOGISTIC, *T.of(h)).beta for h in range(3)]
    Z = np.column_stack([np.where(T.hospital == h, 0.0, LOGISTIC.mean(T.X @ beta)) for h, beta in enumerate(own)])
    A, v = Z.T @ Z, Z.T @ T.y
    assert_allclose(A[0], (6.1258986799, 3.4682683051, 4.4631187182), atol=1e-9)
    assert_allclose(v, (7.8991671979, 8.3442015909, 9.0614313679), atol=1e-9)
    assert_allclose(stacked(A, v), (0.8598596073, 0.4490136194, 0.2407407751), atol=1e-9)


def test_stacked_weights_are_never_negative_and_survive_equal_models() -> None:
    A = np.array([[2.0, 2.0, 0.5], [2.0, 2.0, 0.5], [0.5, 0.5, 1.0]])
    weights = stacked(A, np.array([3.0, 3.0, -1.0]))
    assert (weights >= 0).all()
    assert weights[2] == 0
    assert weights[:2].sum() == pytest.approx(1.5)
