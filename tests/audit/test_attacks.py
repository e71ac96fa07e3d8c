"""Rows out of updates, and members out of confidences."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from raysim.audit.inversion import invert_label, invert_layer
from raysim.audit.membership import confidence, detection, lira
from raysim.core.streams import stream
from raysim.training.base import Optimizer, Task
from raysim.training.models import build_model


def test_the_row_is_in_the_update():
    x, w, b, rate = np.array([0.5, -1.2, 3, 0, 2.5]), np.array([0.1, 0.2, -0.1, 0.05, 0]), 0.3, 0.1
    start, intercept = w.copy(), b
    for _ in range(3):
        residual = 1 / (1 + np.exp(-(w @ x + b))) - 1
        w, b = w - rate * residual * x, b - rate * residual
    assert b - intercept == pytest.approx(0.1064774124, abs=1e-9)
    (row,), label = invert_layer([w - start], [b - intercept]), invert_label([b - intercept])
    np.testing.assert_allclose(row, x, atol=1e-12)
    assert label == 1
    (row,), label = invert_layer([[-0.2, 0.4]], [-0.1]), invert_label([-0.1])
    np.testing.assert_allclose(row, [2, -4])
    assert label == 0
    assert np.isnan(invert_layer([[0.0, 0.0]], [0.0])).all()
    assert invert_label([-0.3, 0.5, -0.2]) == 1
    assert [invert_label([-0.3, 0.5]), invert_label([0.5, -0.3]), invert_label([0.0])] == [1, 0, 0]


def test_confidence_is_the_logit_of_the_true_class():
    np.testing.assert_allclose(confidence([2.0, 2.0], [1, 0]), [2.0, -2.0])
    z, y = np.array([[0.3, -1.0, 2.0], [1.0, 1.0, 1.0]]), np.array([2, 0])
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    expected = np.log(p[[0, 1], y] / (1 - p[[0, 1], y]))
    np.testing.assert_allclose(confidence(z, y), expected, rtol=1e-12)


def test_lira_is_the_log_ratio_of_two_normal_densities():
    confidences = np.array([[9.0, 9.0], [2.0, 1.0], [4.0, 0.0], [1.0, 3.0], [-1.0, 5.0]])
    members = np.array([[1, 0], [1, 0], [1, 0], [0, 1], [0, 1]], dtype=bool)
    # In: row 0 has 2 and 4, row 1 has 3 and 5; out: row 0 has 1 and -1, row 1 has 1 and 0.
    variance_in, variance_out = (2 + 2) / 2, (2 + 0.5) / 2

    def density(x, mean, variance):
        return np.exp(-((x - mean) ** 2) / (2 * variance)) / np.sqrt(variance)

    expected = [
        np.log(density(9, 3, variance_in) / density(9, 0, variance_out)),
        np.log(density(9, 4, variance_in) / density(9, 0.5, variance_out)),
    ]
    np.testing.assert_allclose(lira(confidences, members, 0), expected, rtol=1e-9)
    assert np.isnan(lira(confidences[:, :1], np.ones((5, 1), bool), 0)).all()
    # Of one row, in twice and out twice of the others: one degree of freedom either way.
    few = lira(np.array([[5.0], [2.0], [4.0], [1.0], [-1.0]]), members[[0, 1, 2, 3, 4], :1], 0)
    np.testing.assert_allclose(few, [np.log(density(5, 3, 2) / density(5, 0, 2))], rtol=1e-9)
    # In three times and out twice: 2, 4 and 6 have the mean 4 and the variance 4.
    uneven = lira(np.array([[9.0], [2], [4], [6], [1], [-1]]), np.array([[1], [1], [1], [1], [0], [0]]), 0)
    np.testing.assert_allclose(uneven, [np.log(density(9, 4, 4) / density(9, 0, 2))], rtol=1e-9)


def test_rows_that_are_in_all_others_take_no_freedom_from_those_that_are_out():
    """Row 1 is in all others: out of them is row 0 alone, twice, and in them are both, twice and four times."""
    confidences = np.array([[9.0, 9.0], [2.0, 3.0], [4.0, 5.0], [1.0, 3.0], [-1.0, 5.0]])
    members = np.array([[1, 1], [1, 1], [1, 1], [0, 1], [0, 1]], dtype=bool)
    variance_in, variance_out = (2 + 4) / 4, 2 / 1
    score = 81 / (2 * variance_out) - 36 / (2 * variance_in) + np.log(variance_out / variance_in) / 2
    np.testing.assert_allclose(lira(confidences, members, 0), [score, np.nan], rtol=1e-12)


def test_how_well_members_are_found():
    rng = np.random.default_rng(0)
    members = rng.random(3000) < 0.5
    scores = np.round(rng.normal(size=3000) + members, 1)
    detected = detection(scores, members)
    assert detected.auroc == pytest.approx(roc_auc_score(members, scores), abs=1e-12)
    for share, caught in detected.at.items():
        cuts = [s for s in np.unique(scores) if (scores[~members] >= s).mean() <= share]
        assert caught == max(((scores[members] >= s).mean() for s in cuts), default=0.0)
    assert set(detected.at) == {0.01, 0.001}
    for inside in (True, False):
        nothing = detection([1.0], [inside])
        assert np.isnan([nothing.auroc, *nothing.at.values()]).all()


def test_units_that_one_row_alone_activates_tell_it():
    """Three rows in one step of a network: units 0 and 1 see one each, unit 2 two of them, unit 3 none."""
    model = build_model("mlp", 2, 2, options={"hidden": [4]}, init="default", device="cpu", precision="float64")
    X, y = np.array([[3.0, 0.5], [-2.0, 1.5], [-1.0, -4.0]]), np.array([1, 0, 1])
    weights, intercepts = np.array([[1.0, 0.0], [0.0, -1.0], [-1.0, 0.2], [0.0, 0.0]]), np.array([0, 0, 0, -1.0])
    last = np.random.default_rng(0).normal(size=(2, 4))
    start = np.concatenate([weights.ravel(), intercepts, last.ravel(), np.zeros(2)])
    task = Task(X, y, start, (), 1, 0.1, lambda epoch: stream(0, "batch", epoch))
    change = model.layout.split(model.train([task], Optimizer("sgd", 0.1, 0))[0] - start)
    read = invert_layer(*list(change.values())[:2])
    np.testing.assert_allclose(read[:2], X[[0, 2]], atol=1e-9)
    assert np.abs(read[2] - X).max(axis=1).min() > 0.1
    assert np.isnan(read[3]).all()
