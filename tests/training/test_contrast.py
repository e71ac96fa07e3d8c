"""The contrastive term of MOON: its gradient by finite differences, and both kernels against each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from raysim.training.base import ContrastTerm, Model, Optimizer, Task
from raysim.training.kernels.batched import Cohort, Dense
from raysim.training.kernels.contrast import add_gradient, directions
from raysim.training.kernels.modules.flat import FlatModule
from raysim.training.kernels.modules.generic import ModuleModel
from raysim.training.models import build_model
from tests.training.test_kernels import HIDDEN, close, kernel, make_tasks, plain_loop


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / (max(np.linalg.norm(a), 1e-8) * max(np.linalg.norm(b), 1e-8)))


def term(z: np.ndarray, previous: np.ndarray, received: np.ndarray, weight: float, temperature: float) -> float:
    """The sum over rows, as the paper writes it: -log of a softmax over the two similarities."""
    total = 0.0
    for row, o, r in zip(z, previous, received, strict=True):
        alike, unlike = cosine(row, r) / temperature, cosine(row, o) / temperature
        total -= alike - np.logaddexp(alike, unlike)
    return weight * total


def differences(f, x: np.ndarray) -> np.ndarray:
    """Central differences of ``f`` at ``x``."""
    step, slopes = 1e-6, np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        slopes[i] = (f(up) - f(down)) / (2 * step)
    return slopes


@settings(max_examples=50, deadline=None)
@given(rows=st.integers(1, 4), width=st.integers(1, 5), seed=st.integers(0, 99), tau=st.sampled_from([0.1, 0.5, 2.0]))
def test_its_gradient_is_that_of_the_papers_formula(rows: int, width: int, seed: int, tau: float) -> None:
    rng = np.random.default_rng(seed)
    z, previous, received = rng.normal(size=(3, rows, width))
    into = np.ones((rows, width))
    add_gradient(z, directions(previous, received), 0.7, tau, into)
    np.testing.assert_allclose(into - 1, differences(lambda x: term(x, previous, received, 0.7, tau), z), atol=2e-7)


def test_rows_that_a_model_makes_nothing_of_have_defined_gradients() -> None:
    """After ReLU a row may be all zeros, under any of the three models."""
    previous, received = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 2.0], [0.0, 0.0]])
    for z in (np.zeros((2, 2)), np.ones((2, 2)), np.full((2, 2), 1e-300)):
        into = np.zeros((2, 2))
        add_gradient(z, directions(previous, received), 1.0, 0.5, into)
        assert np.isfinite(into).all()
    assert (directions(previous, previous) == 0).all()


def contrasted(tasks: list[Task], size: int, weight: float = 2.0, temperature: float = 0.5) -> list[Task]:
    """The tasks with a term each, against models of their own."""
    with_contrast = []
    for h, task in enumerate(tasks):
        rng = np.random.default_rng([9, h])
        previous, received = 0.4 * rng.normal(size=(2, size))
        with_contrast.append(replace(task, contrast=ContrastTerm(weight, temperature, received, previous)))
    return with_contrast


@pytest.mark.parametrize("C", [2, 3])
def test_a_step_of_the_mlp_follows_the_whole_losss_differences(C: int) -> None:
    model = kernel("numpy", "mlp", 4, C, "float64")
    (task,) = contrasted(make_tasks([7], 4, C, model.layout.size, epochs=1, rate=1.0), model.layout.size)
    assert task.contrast is not None
    targets = task.contrast

    def below(theta: np.ndarray) -> np.ndarray:
        parts, a = model.layout.split(theta), task.X
        for k in range(len(HIDDEN)):
            a = np.maximum(a @ parts[f"layers.{k}.weight"].T + parts[f"layers.{k}.bias"], 0)
        return a

    previous, received = below(targets.previous), below(targets.received)

    def loss(theta: np.ndarray) -> float:
        z = below(theta)
        parts = model.layout.split(theta)
        k = len(HIDDEN)
        logits = z @ parts[f"layers.{k}.weight"].T + parts[f"layers.{k}.bias"]
        entropy = np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(z)), task.y]
        return (entropy.sum() + term(z, previous, received, targets.weight, targets.temperature)) / len(z)

    (theta,) = model.train([task], Optimizer("sgd", 1.0, 0))
    np.testing.assert_allclose(task.start - theta, differences(loss, task.start), atol=1e-7)
    (without,) = model.train([replace(task, contrast=None)], Optimizer("sgd", 1.0, 0))
    assert np.abs(without - theta).max() > 1e-3


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("C", [2, 3])
@settings(max_examples=20, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 9), max_size=4),
    F=st.integers(1, 4),
    batch_size=st.integers(0, 6),
    epochs=st.integers(0, 3),
    proximal=st.integers(0, 1),
)
def test_the_hand_written_kernel_equals_autograd(
    C: int, optimizer: str, sizes: list[int], F: int, batch_size: int, epochs: int, proximal: int
) -> None:
    plain, fast = plain_loop("mlp", F, C, "float64"), kernel("numpy", "mlp", F, C, "float64")
    tasks = make_tasks(sizes, F, C, plain.layout.size, epochs=epochs, proximal=proximal, rate=0.02)
    tasks = contrasted(tasks, plain.layout.size)
    terms = Optimizer(optimizer, 0.02, batch_size)
    # Batches, representations and order agree; autograd's other order of sums is all that is left.
    close(fast.train(tasks, terms), plain.train(tasks, terms), 1e-8)


@pytest.mark.parametrize("kind", ["numpy", "loop"])
def test_one_model_on_both_sides_changes_no_bit(kind: str) -> None:
    model: Model = plain_loop("mlp", 3, 3, "float64") if kind == "loop" else kernel("numpy", "mlp", 3, 3, "float64")
    tasks = make_tasks([9, 1, 6], 3, 3, model.layout.size)
    for same in ([task.start for task in tasks], [task.start.copy() for task in tasks]):
        both = [
            replace(t, contrast=ContrastTerm(5.0, 0.5, t.start, previous))
            for t, previous in zip(tasks, same, strict=True)
        ]
        np.testing.assert_array_equal(
            model.train(both, Optimizer("sgd", 0.1, 4)), model.train(tasks, Optimizer("sgd", 0.1, 4))
        )


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_hospitals_do_not_depend_on_their_neighbours(precision: str) -> None:
    model = kernel("numpy", "mlp", 4, 2, precision)
    tasks = contrasted(make_tasks([9, 3, 12, 1], 4, 2, model.layout.size), model.layout.size)
    together = model.train(tasks, Optimizer("sgd", 0.1, 4))
    for task, theta in zip(tasks, together, strict=True):
        np.testing.assert_array_equal(model.train([task], Optimizer("sgd", 0.1, 4))[0], theta)


def test_the_batched_kernel_leaves_it_to_its_host() -> None:
    host = kernel("numpy", "mlp", 4, 2, "float64")
    cohort = Cohort(host, Dense((4, *HIDDEN, 2)), device="cpu", precision="float64")
    tasks = contrasted(make_tasks([9, 3], 4, 2, host.layout.size), host.layout.size)
    terms = Optimizer("sgd", 0.1, 4)
    np.testing.assert_array_equal(cohort.train(tasks, terms), host.train(tasks, terms))


class Convolved(nn.Module):
    """What its last linear layer receives has more than one dimension a row; batch statistics and dropout besides."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(1, 2, 2), nn.BatchNorm1d(2)
        self.drop = nn.Dropout(0.3)
        self.out = nn.Linear(n_features - 1, n_outputs)

    def forward(self, X: Tensor) -> Tensor:
        out: Tensor = self.out(self.drop(self.norm(self.conv(X[:, None])).relu())).sum(1)
        return out


def test_any_module_is_contrasted_at_its_last_linear_layer_and_nothing_is_left_behind() -> None:
    model = ModuleModel(FlatModule(Convolved, 5, 2, {}, "default", "cpu", "float64"))
    tasks = make_tasks([8, 1, 6], 5, 2, model.layout.size)
    start = model.initial(np.random.default_rng(0))
    tasks = [replace(task, start=start) for task in tasks]
    rng = np.random.default_rng(1)
    other = start + 0.3 * np.abs(rng.normal(size=len(start)))
    terms = Optimizer("sgd", 0.1, 4)
    plain = model.train(tasks, terms)
    moved = model.train([replace(t, contrast=ContrastTerm(1.0, 0.5, start, other)) for t in tasks], terms)
    assert np.isfinite(moved).all()
    assert np.abs(moved - plain).max() > 1e-4
    np.testing.assert_array_equal(model.train(tasks, terms), plain)
    assert not model.module.out._forward_pre_hooks


class NoLinear(nn.Module):
    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n_features, n_outputs))

    def forward(self, X: Tensor) -> Tensor:
        return X @ self.weight


def test_models_without_a_layer_below_the_last_raise() -> None:
    models: list[Model] = [
        build_model("logistic_regression", 3, 2, options={}, precision="float64"),
        build_model("logistic_regression", 3, 4, options={}, precision="float64"),
        build_model("linear_regression", 3, 0, options={}, precision="float64"),
        build_model("mlp", 3, 2, options={"hidden": []}, precision="float64"),
        ModuleModel(FlatModule(NoLinear, 3, 2, {}, "default", "cpu", "float64")),
    ]
    for model in models:
        for device in ("alone", "cohort"):
            kind = Cohort(model, Dense((3, 2)), device="cpu", precision="float64") if device == "cohort" else model
            theta = np.zeros(model.layout.size)
            task = make_tasks([4], 3, 2, len(theta))[0]
            with pytest.raises(ValueError, match="contrastive term needs a"):
                kind.train([replace(task, contrast=ContrastTerm(1.0, 0.5, theta, theta))], Optimizer("sgd", 0.1, 0))


def test_of_a_representation_that_is_almost_nothing_the_length_is_the_least_denominator():
    """Its own direction has no part in the gradient then."""
    z, v, into = np.array([[1e-9, 0.0], [1e-9, 0.0]]), np.array([[0.0, 1.0], [1.0, 0.0]]), np.zeros((2, 2))
    add_gradient(z, v, 2.0, 0.5, into)
    slopes = 2.0 / 0.5 / (1.0 + np.exp(-np.array([0.0, 0.1]) / 0.5)) / 1e-8
    assert into[0].tolist() == [0.0, pytest.approx(slopes[0], rel=1e-12)]
    assert into[1].tolist() == [pytest.approx(slopes[1], rel=1e-12), 0.0]
    local, received = np.array([[3.0, 4.0], [0.0, 5e-9]]), np.array([[0.0, 2.0], [0.0, 0.0]])
    assert directions(local, received) == pytest.approx(np.array([[0.6, -0.2], [0.0, 0.5]]))
