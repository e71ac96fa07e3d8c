"""Rows and labels out of the sums of a regression: exactly, where they are no more than the columns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from raysim.audit.inversion import labels_of, rows_of, rows_read
from raysim.strategies.regressions.families import LOGISTIC
from tests.strategies.regressions.tables import SEPARATED, table_t


def in_order(rows: np.ndarray) -> np.ndarray:
    return rows[np.lexsort(rows.T)]


def test_one_row_is_read_out_of_its_hessian() -> None:
    T = table_t()
    X, y = T.X[[5]], T.y[[5]]
    sums = LOGISTIC.sums(X, y, np.zeros(3))
    assert_allclose(sums.hessian[0] / sums.hessian[0, 0], X[0], atol=0)
    assert_allclose(rows_of(sums.hessian, LOGISTIC.sums(X, y, np.ones(3)).hessian), X, atol=1e-12)
    assert_allclose(sums.gradient[0] + 0.5, y[0], atol=0)


def test_three_rows_are_read_out_of_two_calls() -> None:
    X, y = SEPARATED
    first = LOGISTIC.sums(X, y, np.zeros(3))
    second = LOGISTIC.sums(X, y, np.array([0.2, 1.8, -1.3]))  # a step that all hospitals' rows have made
    rows = rows_of(first.hessian, second.hessian)
    assert_allclose(in_order(rows), in_order(X), atol=1e-12)
    labels = labels_of(rows, first.gradient)
    order, known = np.lexsort(rows.T), np.lexsort(X.T)
    assert_allclose(labels[order], y[known], atol=1e-12)


@given(seed=st.integers(0, 2**16), n=st.integers(1, 6))
def test_rows_no_more_than_columns_are_read(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 5))])
    y, beta = rng.integers(2, size=n).astype(float), rng.normal(size=6)
    rows = rows_of(LOGISTIC.sums(X, y, np.zeros(6)).hessian, LOGISTIC.sums(X, y, beta).hessian)
    assert rows.shape == X.shape
    assert_allclose(in_order(np.round(rows, 4)), in_order(np.round(X, 4)), atol=1e-3)


def test_rows_that_are_read_are_counted() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(40, 5)), rng.integers(2, size=40).astype(float)
    assert [rows_read(X[:n], y[:n]) for n in (1, 3, 6, 12, 40)] == [1, 3, 6, 0, 0]


@pytest.mark.parametrize("n", [8, 30])
def test_more_rows_than_columns_are_not_read_so(n: int) -> None:
    rng = np.random.default_rng(n)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 5))])
    y = rng.integers(2, size=n).astype(float)
    rows = rows_of(LOGISTIC.sums(X, y, np.zeros(6)).hessian, LOGISTIC.sums(X, y, np.ones(6)).hessian)
    nearest = np.abs(X[:, None] - rows).max(axis=2).min()
    assert nearest > 0.05
