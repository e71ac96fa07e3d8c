"""Newton's method on sums, against the fits of other programs (statsmodels, scikit-learn, firthmodels)."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from raysim.strategies.regressions.families import LINEAR, LOGISTIC, POISSON
from raysim.strategies.regressions.left_out import shrunk
from raysim.strategies.regressions.newton_steps import Fit, fitted, independent
from raysim.strategies.regressions.standard_errors import by_hospital, model_based
from tests.strategies.regressions.tables import SEPARATED, left_out, table_g, table_t

T = table_t()
POOLED = (0.2099782522, 1.8253260800, -1.3068987085)


def test_the_tables_are_those_that_others_computed() -> None:
    assert T.X.sum(axis=0)[1:].tolist() == [-0.25, -1.25]
    assert "".join(str(int(y)) for y in T.y) == "010101100100011110100100010111110110"
    assert "".join(str(int(c)) for c in T.counts) == "054121441214225221342213153442443424"
    assert [T.real[T.hospital == h].sum() for h in range(3)] == [0, 12.875, 23.875]
    assert [table_g().of(h)[1].sum() for h in range(8)] == [1, 8, 4, 11, 7, 2, 9, 4]


def test_a_logistic_fit_takes_five_sums_from_zeros() -> None:
    fit = fitted(LOGISTIC, T.X, T.y)
    assert fit.status == "converged"
    assert_allclose(fit.beta, POOLED, atol=1e-9)
    losses = [36 * np.log(2), 18.3387972368, 17.9161452945, 17.9020656411, 17.9020417189]
    assert_allclose(fit.losses, losses, atol=1e-9)
    assert_allclose(fit.decrements, [6.006220759, 0.3814230976, 0.01371125781, 2.389373e-5, 7.685e-11], rtol=1e-3)


@pytest.mark.parametrize(("start", "calls", "halvings"), [((3, -6, 4), 15, 8), ((0, 4, 0), 7, 2), ((0, 0, 0), 5, 0)])
def test_a_bad_start_is_halved_back(start: tuple[float, ...], calls: int, halvings: int) -> None:
    fit = Fit(np.array(start, dtype=float))
    while fit.going:
        fit = fit.updated(LOGISTIC.sums(T.X, T.y, fit.beta))
    assert (len(fit.losses), fit.halvings, fit.status) == (calls, halvings, "converged")
    assert_allclose(fit.beta, POOLED, atol=1e-9)


def test_sums_of_hospitals_are_those_of_all_rows() -> None:
    fit = Fit(np.zeros(3))
    while fit.going:
        one, two, three = (LOGISTIC.sums(*T.of(h), fit.beta) for h in range(3))
        fit = fit.updated(one + two + three)
    assert_allclose(fit.beta, fitted(LOGISTIC, T.X, T.y).beta, atol=1e-13)


def test_ridge_leaves_the_intercept_alone() -> None:
    fit = fitted(LOGISTIC, T.X, T.y, ridge=1.0)
    assert_allclose(fit.beta, (0.1555292713, 1.2736356377, -0.8223408821), atol=1e-9)
    assert fit.losses[-1] == pytest.approx(19.5625946367, abs=1e-9)
    assert fit.keep is not None
    errors = model_based(LOGISTIC.sums(T.X, T.y, fit.beta).hessian, fit.keep, ridge=1.0)
    assert_allclose(errors.se, (0.3792800, 0.3885693, 0.3963999), atol=1e-7)


@pytest.mark.parametrize("ridge", [0.5, 1.0, 10.0])
def test_the_loss_of_rows_left_out_is_exact_in_a_linear_regression_and_near_else(ridge: float) -> None:
    for h in range(3):
        X, t = T.X[T.hospital == h], T.real[T.hospital == h]
        assert_allclose(shrunk(LINEAR, X, t, [ridge]).loss[0], left_out(LINEAR, X, t, ridge), rtol=1e-10)
        X, y = T.of(h)
        assert_allclose(shrunk(LOGISTIC, X, y, [ridge]).loss[0], left_out(LOGISTIC, X, y, ridge), rtol=0.06)


def test_separated_classes_are_named() -> None:
    X, y = SEPARATED
    fit = fitted(LOGISTIC, X, y)
    assert fit.status == "separated"
    assert_allclose(fit.decrements[:5], (1.5, 0.203, 0.0652, 0.0230, 0.00832), rtol=2e-3)
    assert fitted(LOGISTIC, X, y, ridge=1.0).status == "converged"


def test_separation_by_one_flag_is_noticed_and_a_full_block_of_levels_is_not_taken_for_it() -> None:
    flag = (T.y > 0) & (np.arange(36) % 3 == 0)
    assert fitted(LOGISTIC, np.column_stack([T.X, flag]), T.y).status == "separated"
    levels = np.eye(3)[np.arange(36) % 3]
    full = fitted(LOGISTIC, np.column_stack([T.X, levels]), T.y)
    assert full.status == "converged"
    assert full.keep is not None
    assert full.keep.tolist() == [True] * 5 + [False]
    assert_allclose(full.beta[:5], fitted(LOGISTIC, np.column_stack([T.X, levels[:, :2]]), T.y).beta, atol=1e-12)


def test_columns_that_say_nothing_of_their_own_leave() -> None:
    X = np.column_stack([T.X, 2 * T.X[:, 1] + 1, np.zeros(36)])
    assert independent(X.T @ X).tolist() == [True, True, True, False, False]
    fit = fitted(LOGISTIC, X, T.y)
    assert_allclose(fit.beta, (*POOLED, 0, 0), atol=1e-9)
    assert fit.keep is not None
    errors = model_based(LOGISTIC.sums(X, T.y, fit.beta).hessian, fit.keep)
    assert_allclose(errors.se, (0.4214956543, 0.6322417539, 0.6083514798, np.nan, np.nan), atol=1e-9)


def test_poisson() -> None:
    fit = fitted(POISSON, T.X, T.counts)
    assert len(fit.losses) == 6
    assert_allclose(fit.beta, (1.0023244381, 0.0033834491, 0.0658350992), atol=1e-9)
    assert fit.keep is not None
    errors = model_based(POISSON.sums(T.X, T.counts, fit.beta).hessian, fit.keep)
    assert_allclose(errors.se, (0.1010293935, 0.1165483796, 0.1379642128), atol=1e-9)


def test_a_linear_fit_takes_two_sums() -> None:
    fit = fitted(LINEAR, T.X, T.real)
    assert len(fit.losses) == 2
    assert_allclose(fit.beta, (1.0079187896, 1.1471332877, -0.6013655179), atol=1e-9)
    sums = LINEAR.sums(T.X, T.real, fit.beta)
    variance = 2 * sums.loss / 33
    assert variance == pytest.approx(1.1532755425, abs=1e-9)
    assert fit.keep is not None
    errors = model_based(sums.hessian, fit.keep, variance=variance, rows=36)
    assert_allclose(errors.se, (0.1791668694, 0.2060785416, 0.2461664597), atol=1e-9)
    assert errors.quantile == pytest.approx(2.0345152975)


def test_standard_errors_over_hospitals() -> None:
    fit = fitted(LOGISTIC, T.X, T.y)
    sums = [LOGISTIC.sums(*T.of(h), fit.beta) for h in range(3)]
    total, meat = sums[0] + sums[1] + sums[2], sum(np.outer(s.gradient, s.gradient) for s in sums)
    assert fit.keep is not None
    errors = by_hospital(total.hessian, np.asarray(meat), fit.keep, 3, 36)
    assert_allclose(errors.se, (0.4751718611, 0.2026311330, 0.5462898295), atol=1e-9)
    assert errors.quantile == pytest.approx(4.3026527297)
    assert np.isnan(by_hospital(total.hessian, np.asarray(meat), fit.keep, 1, 36).se).all()
    assert_allclose(model_based(total.hessian, fit.keep).se, (0.4214956543, 0.6322417539, 0.6083514798), atol=1e-9)


def test_a_step_that_overflows_is_halved_back_and_nan_stops() -> None:
    fit = Fit(np.array([-9.0, 0.0, 0.0]))  # the first whole step is some thousands long
    while fit.going:
        fit = fit.updated(POISSON.sums(T.X, T.counts, fit.beta))
    assert fit.status == "converged"
    assert_allclose(fit.beta, (1.0023244381, 0.0033834491, 0.0658350992), atol=1e-9)
    assert Fit(np.zeros(3)).updated(LOGISTIC.sums(T.X, np.full(36, np.nan), np.zeros(3))).status == "stopped"
