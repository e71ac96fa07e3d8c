"""Wide regressions by gradients alone, against scikit-learn's optimum and Newton's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

from raysim.config.sections.secure import SecureSection
from raysim.data.federation import Federation
from raysim.strategies.regressions.newton import Newton
from tests.conftest import job_of, run, run_strategy
from tests.equality import same_models
from tests.strategies.regressions.federations import LINEAR_MODEL, POISSON_MODEL, federation_of
from tests.strategies.regressions.tables import Table, table_t

T = table_t()
WIDE = Newton(ridge=1.0, solver="lbfgs")


@pytest.fixture(scope="module")
def cancer(tmp_path_factory) -> tuple[Table, Federation]:
    X, benign = load_breast_cancer(return_X_y=True)
    train = np.arange(len(X)) % 4 != 0
    X, y = X[train], 1.0 - benign[train]
    X = ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32).astype(np.float64)
    hospital = np.searchsorted(np.quantile(X[:, 0], [0.2, 0.4, 0.6, 0.8]), X[:, 0])
    order = np.argsort(hospital, kind="stable")
    table = Table(np.column_stack([np.ones(len(X)), X])[order], y[order], y[order], y[order], hospital[order])
    return table, federation_of(tmp_path_factory.mktemp("cancer") / "c", table, table.y)


def test_it_is_the_optimum_of_scikit_learn(cancer):
    table, federation = cancer
    outcome = run_strategy(federation, WIDE, rounds=100)
    assert outcome.facts["converged"] == 1.0
    assert outcome.rounds_run < 60
    solved = LogisticRegression(C=1.0, solver="newton-cholesky", tol=1e-12).fit(table.X[:, 1:], table.y)
    assert_allclose(outcome.models[0], [*solved.coef_[0], *solved.intercept_], atol=1e-6)
    eta = table.X @ np.roll(outcome.models[0], 1)
    loss = np.sum(np.logaddexp(0, eta) - table.y * eta) + (outcome.models[0, :-1] ** 2).sum() / 2
    assert loss == pytest.approx(30.6648924807, abs=1e-4)  # of columns in float32
    *up, last = [row.bytes_up for row in outcome.rounds]
    assert set(up) == {5 * 8 * (1 + 31)}
    assert last > 5 * 8 * (1 + 31 + 31 * 32 / 2)


@pytest.mark.parametrize(("y", "classes", "model"), [(T.real * 500, 0, LINEAR_MODEL), (T.counts, 0, POISSON_MODEL)])
def test_of_numbers_and_counts_it_is_newtons(tmp_path: Path, y, classes, model):
    federation = federation_of(tmp_path / "t", T, y, classes)
    outcome, newton = (run_strategy(federation, each, rounds=80, model=model) for each in (WIDE, Newton(ridge=1.0)))
    assert outcome.ended
    assert_allclose(outcome.models, newton.models, rtol=1e-6)
    assert outcome.uncertainty is not None
    assert newton.uncertainty is not None
    assert_allclose(outcome.uncertainty.se, newton.uncertainty.se, rtol=1e-5)
    assert_allclose(outcome.uncertainty.se_robust, newton.uncertainty.se_robust, rtol=1e-5)


def test_columns_that_make_up_others_are_shared_out_alike(tmp_path: Path):
    """Three levels of a category make up the intercept, and a column is there twice: as ridge regression has it."""
    level = np.arange(len(T.y)) % 3
    X = np.column_stack([T.X, np.eye(3)[level], T.X[:, 1]])
    federation = federation_of(tmp_path / "t", T._replace(X=X), T.y)
    outcome, newton = (run_strategy(federation, each, rounds=80) for each in (WIDE, Newton(ridge=1.0)))
    solved = LogisticRegression(C=1.0, solver="newton-cholesky", tol=1e-12).fit(X[:, 1:], T.y)
    expected = [*solved.coef_[0], *solved.intercept_]
    assert_allclose(newton.models[0], expected, atol=1e-6)
    assert_allclose(outcome.models[0], expected, atol=1e-6)
    assert_allclose(newton.models[0, 0], newton.models[0, 5], atol=1e-9)
    assert outcome.uncertainty is not None
    assert newton.uncertainty is not None
    assert np.isfinite(newton.uncertainty.se).all()
    assert_allclose(outcome.uncertainty.se, newton.uncertainty.se, rtol=1e-5)


def test_neither_placement_nor_masks_change_a_bit(tmp_path: Path):
    federation = federation_of(tmp_path / "t", T, T.y)
    job = job_of(federation, WIDE, rounds=8)
    alone = run(federation, job, 1)
    same_models(alone, run(federation, job, 3))
    same_models(alone, run(federation, replace(job, secure=SecureSection(mode="model")), 2))


def test_it_needs_a_penalty():
    with pytest.raises(ValueError, match=r"^ridge: 0 gives lbfgs no unique optimum if columns are collinear"):
        Newton(solver="lbfgs")
    with pytest.raises(ValueError, match=r"^solver: 'adam' is not one of newton, lbfgs"):
        Newton(solver="adam")
