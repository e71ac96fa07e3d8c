"""Clipped sums of gradients against explicit gradients of every row, and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from raysim.training.kernels.clipped import Clippable, clipped_sum, patient_lengths
from raysim.training.models import build_model
from tests.training.families import MODELS

X = np.array([[1.0, 2.0], [-1.0, 0.5], [0.3, -1.2]])
Y = np.array([1, 0, 0])
ALONE = np.arange(3)


def model(name: str, features: int, classes: int, **options) -> Any:
    built = build_model(name, features, classes, options=options, init="default", device="cpu", precision="float64")
    assert isinstance(built, Clippable)
    return built


def test_logistic_regression_by_hand():
    theta = np.array([0.5, -0.25, 0.1])
    layers = model("logistic_regression", 2, 2).traced(theta, X, Y, None)
    assert patient_lengths(layers, ALONE) == pytest.approx([1.16355861, 0.55752572, 1.00865440], abs=1e-8)
    assert clipped_sum(layers, ALONE, 0.5) == pytest.approx([-0.44315329, -0.61879839, 0.44355649], abs=1e-8)


def test_a_perceptron_by_hand():
    theta = np.array([0.5, -0.25, 0.1, 0.3, 0.1, -0.1, 1.0, -0.5, -0.2, 0.4, 0.0, 0.05])
    layers = model("mlp", 2, 2, hidden=[2]).traced(theta, X, Y, None)
    assert patient_lengths(layers, ALONE) == pytest.approx([1.5499605139, 0.7247807688, 0.8800212444], abs=1e-9)


@pytest.mark.parametrize(("name", "classes", "options"), MODELS)
@given(
    patients=st.lists(st.integers(1, 4), min_size=0, max_size=6),
    clip=st.sampled_from([0.05, 0.7, np.inf]),
    weighted=st.booleans(),
    seed=st.integers(0, 99),
)
def test_it_is_the_sum_of_clipped_explicit_gradients(name, classes, options, patients, clip, weighted, seed):
    """An empty batch too; ``patients`` have so many rows each."""
    rng = np.random.default_rng(seed)
    features, n = 3, sum(patients)
    traceable = model(name, features, classes, **options)
    theta = rng.normal(size=traceable.layout.size)
    rows, patient = rng.normal(size=(n, features)), np.repeat(np.arange(len(patients)), patients)
    y = rng.integers(classes, size=n) if classes else rng.normal(size=n)
    weights = rng.uniform(0.1, 2, size=n) if weighted else None
    layers = traceable.traced(theta, rows, y, weights)
    explicit = np.zeros((len(patients), len(theta)))
    for k in range(n):
        counted = 1.0 if weights is None else weights[k]
        explicit[patient[k]] += counted * gradient(traceable, theta, rows[k : k + 1], y[k : k + 1])
    lengths = np.linalg.norm(explicit, axis=1)
    assert patient_lengths(layers, patient) == pytest.approx(lengths, abs=1e-6)
    by_hand = (explicit * np.minimum(1, clip / np.maximum(lengths, 1e-300))[:, None]).sum(axis=0)
    assert clipped_sum(layers, patient, clip) == pytest.approx(by_hand, abs=1e-6)


def gradient(traceable, theta, x, y) -> np.ndarray:
    """Of one row's loss, by central differences."""
    step, slopes = 1e-6, np.empty(len(theta))
    for j in range(len(theta)):
        ends = []
        for sign in (1, -1):
            moved = theta.copy()
            moved[j] += sign * step
            ends.append(traceable.row_losses(traceable.logits(moved, x), y)[0])
        slopes[j] = (ends[0] - ends[1]) / (2 * step)
    return slopes


def test_rows_that_are_a_patient_each_need_no_numbers():
    theta = np.array([0.5, -0.25, 0.1])
    layers = model("logistic_regression", 2, 2).traced(theta, X, Y, None)
    assert (clipped_sum(layers, None, 0.5) == clipped_sum(layers, ALONE, 0.5)).all()


def test_a_row_that_is_not_finite_counts_zero():
    theta = np.array([0.5, -0.25, 0.1])
    bad = X.copy()
    bad[1, 0] = np.nan
    layers = model("logistic_regression", 2, 2).traced(theta, bad, Y, None)
    without = model("logistic_regression", 2, 2).traced(theta, X[[0, 2]], Y[[0, 2]], None)
    assert clipped_sum(layers, ALONE, 0.5) == pytest.approx(clipped_sum(without, np.arange(2), 0.5), abs=1e-12)


def test_an_embedding_s_clipped_sum_is_that_of_autograd():
    """Of patients of several rows; padding has no gradient, and what is not an index into the table is said."""
    rng, clip, patient = np.random.default_rng(0), 0.3, np.array([0, 0, 1, 2, 2, 2, 3])
    text = model("text_dense", 6, 3, vocabulary=9, dimension=4)
    theta, ids, y = text.initial(rng), rng.integers(0, 9, (7, 6)).astype(float), rng.integers(0, 3, 7)
    expected = np.zeros_like(theta)
    for one in range(4):
        rows, module = patient == one, text.as_module(theta).module.train()
        losses = nn.functional.cross_entropy(
            module(torch.from_numpy(ids[rows])), torch.from_numpy(y[rows]), reduction="sum"
        )
        slopes = torch.autograd.grad(losses, list(module.parameters()))
        gradient = np.concatenate([slope.reshape(-1).numpy() for slope in slopes])
        expected += gradient * min(1, clip / np.linalg.norm(gradient))
    found = text.clipped_sum(theta, ids, y, None, patient, clip)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert not found[:4].any()
    assert np.abs(found[4:]).max() > 0.01
    for wrong in (9, 0.5, -1, np.nan):
        ids[2, 3] = wrong
        with pytest.raises(ValueError, match=rf"a feature is {wrong}, not an index from 0 to 8 of the model's"):
            text.clipped_sum(theta, ids, y, None, patient, clip)
