"""The model of a client program at one hospital, against logistic regression written out in numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raysim.engine.client.program_model import HospitalModel
from raysim.strategies.base import Rows
from raysim.strategies.one_model.fedavg import FedAvg
from tests.conftest import MakeFederation, job_of


@pytest.mark.parametrize("weights", [None, np.array([0.5, 3.0])])
def test_the_gradient_of_each_row_is_that_of_its_own_loss(federate: MakeFederation, weights: np.ndarray | None):
    federation = federate([7], features=4)
    X, y = federation.X[:7], federation.y[:7]
    work = job_of(federation, FedAvg()).work
    work = replace(work, optimizer=replace(work.optimizer, weight_decay=0.25))
    factors = None if weights is None else weights[y]
    rows = Rows(X, y, np.ones(X.shape, dtype=np.bool_), factors)
    model = HospitalModel(work.model.bind(federation, "cpu", "float64"), work, rows, 0, 1, 0)
    theta = np.array([0.3, -0.2, 0.5, 0.1, -0.4])
    columns = np.column_stack([X.astype(np.float64), np.ones(len(y))])
    residuals = (1 / (1 + np.exp(-columns @ theta)) - y) * (1 if factors is None else factors)
    each = residuals[:, None] * columns
    np.testing.assert_allclose(model.rows_gradient(theta), each, rtol=0, atol=1e-9)
    np.testing.assert_allclose(model.rows_gradient(theta, np.array([5, 1])), each[[5, 1]], rtol=0, atol=1e-9)
    decay = 0.25 * np.append(theta[:-1], 0)
    np.testing.assert_allclose(model.gradient(theta), each.mean(axis=0) + decay, rtol=0, atol=1e-9)
    assert model.rows_gradient(theta, np.array([], dtype=np.int64)).shape == (0, 5)
