"""Weight decay, rows' weights and optimisers that go on where they stopped: every kernel against a loop of its own.

The loop writes the objective down as it is defined and leaves the rest to autograd and ``torch.optim``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from raysim.training.base import Moments, Optimizer, Task
from raysim.training.kernels.batched import Cohort, Dense
from raysim.training.kernels.modules.flat import FlatModule
from raysim.training.kernels.modules.generic import ModuleModel
from raysim.training.models import build_model
from tests.training.test_kernels import FAMILIES, Linear, Perceptron, close, kernel, make_tasks, plain_loop

KINDS = ["numpy", "dense", "vmap", "loop"]
OPTIMIZERS = ["sgd", "momentum", "adam"]


def minimise(cls: type[nn.Module], F: int, C: int, updates: list[Task], how: Optimizer) -> NDArray[np.float64]:
    """The local updates of one hospital, one after another with one optimiser, from the start of the first; ``[P]``."""
    module = cls(F, C).double()
    named = dict(module.named_parameters())
    sizes = [p.numel() for p in named.values()]
    flat = torch.from_numpy(updates[0].start.copy())
    for p, part in zip(named.values(), flat.split(sizes), strict=True):
        p.data = part.view_as(p).clone()
    rate = updates[0].learning_rate
    solver: torch.optim.Optimizer = torch.optim.Adam(module.parameters(), lr=rate)
    if how.name != "adam":
        solver = torch.optim.SGD(module.parameters(), lr=rate, momentum=0.9 if how.name == "momentum" else 0)
    for task in updates:
        X, y, n = torch.from_numpy(task.X.copy()), torch.from_numpy(task.y.copy()), len(task.y)
        w = torch.ones(n, dtype=X.dtype) if task.weights is None else torch.from_numpy(task.weights)
        size = min(how.batch_size, n) if how.batch_size else n
        for epoch in range(task.epochs if n else 0):
            order = np.arange(n) if size == n else task.batches(epoch).permutation(n)
            for low in range(0, n, size):
                rows = torch.from_numpy(order[low : low + size])
                theta = torch.cat([p.reshape(-1) for p in named.values()])
                losses = nn.functional.cross_entropy(
                    functional_call(module, named, (X[rows],)), y[rows], reduction="none"
                )
                objective = (losses * w[rows]).sum() / len(rows)
                for weight, towards in task.proximal:
                    objective = objective + weight / 2 * (theta - torch.from_numpy(towards.copy())).square().sum()
                for name, p in named.items():
                    if not name.endswith("bias"):
                        objective = objective + how.weight_decay / 2 * p.square().sum()
                solver.zero_grad()
                torch.autograd.backward(objective)
                solver.step()
    result: NDArray[np.float64] = torch.cat([p.detach().reshape(-1) for p in named.values()]).numpy()
    return result


def model_of(kind: str, family: str, C: int):
    return plain_loop(family, 3, C, "float64") if kind == "loop" else kernel(kind, family, 3, C, "float64")


def weighted(tasks: list[Task]) -> list[Task]:
    """The tasks with weights of their rows, but for every third."""
    return [
        task if h % 3 == 2 else replace(task, weights=np.random.default_rng([9, h]).uniform(0, 4, len(task.y)))
        for h, task in enumerate(tasks)
    ]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("family", "C"), FAMILIES)
@settings(max_examples=10, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 9), max_size=4),
    batch_size=st.integers(0, 6),
    epochs=st.integers(0, 3),
    proximal=st.integers(0, 1),
    decay=st.sampled_from([0.0, 0.3]),
    weighs=st.booleans(),
)
def test_kernels_minimise_the_objective(
    family: str,
    C: int,
    kind: str,
    optimizer: str,
    sizes: list[int],
    batch_size: int,
    epochs: int,
    proximal: int,
    decay: float,
    weighs: bool,
) -> None:
    model = model_of(kind, family, C)
    tasks = make_tasks(sizes, 3, C, model.layout.size, epochs=epochs, proximal=proximal, rate=0.02)
    tasks = weighted(tasks) if weighs else tasks
    how = Optimizer(optimizer, 0.02, batch_size, decay)
    cls = Linear if family == "logistic_regression" else Perceptron
    expected = [minimise(cls, 3, C, [task], how) for task in tasks]
    close(model.train(tasks, how), np.array(expected).reshape(len(tasks), model.layout.size), 1e-10)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("family", "C"), FAMILIES)
def test_local_updates_that_carry_the_optimiser_are_one_descent(family: str, C: int, kind: str, optimizer: str) -> None:
    """Three local updates of which each goes on where the last stopped; a neighbour joins late, with fewer steps."""
    model = model_of(kind, family, C)
    P, how = model.layout.size, Optimizer(optimizer, 0.02, 3, 0.1)
    (task, other) = weighted(make_tasks([7, 3], 3, C, P, epochs=2, proximal=1, rate=0.02))
    updates, others = (
        [replace(each, batches=lambda epoch, t=t: np.random.default_rng([t, epoch])) for t in range(3)]
        for each in (task, other)
    )
    theta, late, moments, theirs = task.start, other.start, Moments(), Moments()
    for t, update in enumerate(updates):
        both = [replace(update, start=theta, moments=moments), replace(others[t], start=late, moments=theirs)]
        theta, *joined = model.train(both if t else both[:1], how)
        late = joined[0] if joined else late
    cls = Linear if family == "logistic_regression" else Perceptron
    close(theta, minimise(cls, 3, C, updates, how), 1e-10)
    close(late, minimise(cls, 3, C, others[1:], how), 1e-10)
    fresh = task.start
    for update in updates:
        (fresh,) = model.train([replace(update, start=fresh)], how)
    assert (np.abs(fresh - theta).max() < 1e-12) == (optimizer == "sgd")
    assert (moments.first is None) == (optimizer == "sgd")
    assert moments.steps == (18 if optimizer == "adam" else 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(("family", "C"), FAMILIES)
def test_no_decay_and_weights_of_one_change_no_bit(family: str, C: int, kind: str, optimizer: str) -> None:
    model = model_of(kind, family, C)
    tasks = make_tasks([7, 0, 5], 3, C, model.layout.size, proximal=1)
    ones = [replace(task, weights=np.ones(len(task.y)), moments=Moments()) for task in tasks]
    plain = model.train(tasks, Optimizer(optimizer, 0.1, 3))
    np.testing.assert_array_equal(model.train(tasks, Optimizer(optimizer, 0.1, 3, 0.0)), plain)
    np.testing.assert_array_equal(model.train(ones, Optimizer(optimizer, 0.1, 3)), plain)


@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_of_two_is_the_row_twice(kind: str) -> None:
    """In a full batch, up to the number that the sum is divided by."""
    model = model_of(kind, "logistic_regression", 2)
    (task,) = make_tasks([4], 3, 2, model.layout.size, epochs=1, rate=0.3)
    twice = replace(task, X=np.concatenate([task.X, task.X[:1]]), y=np.append(task.y, task.y[0]))
    weights = np.array([2.0, 1, 1, 1]) * 4 / 5
    how = Optimizer("sgd", 0.3, 0)
    close(model.train([replace(task, weights=weights)], how), model.train([twice], how), 1e-12)


def test_weight_decay_alone_by_hand() -> None:
    """Features 0 and an event and none: only the penalty moves the weight, (1 - .1 * .5)^3 of it; the bias stays."""
    model = build_model("logistic_regression", 1, 2, options={}, precision="float64")
    task = Task(np.zeros((2, 1)), np.array([0, 1]), np.array([2.0, 0.0]), [], 3, 0.1, np.random.default_rng)
    (theta,) = model.train([task], Optimizer("sgd", 0.1, 0, 0.5))
    np.testing.assert_allclose(theta, [2 * 0.95**3, 0.0], atol=1e-15)


@pytest.mark.parametrize("kind", ["numpy", "dense"])
@pytest.mark.parametrize("loss", ["squared", "absolute"])
@pytest.mark.parametrize("family", ["linear_regression", "mlp"])
def test_a_real_label(kind: str, loss: str, family: str) -> None:
    """The hand-written kernels against the module's loop, which the tests above hold to the objective."""
    options = {"loss": loss} | ({"hidden": [5, 4]} if family == "mlp" else {})
    widths = (3, 5, 4, 1) if family == "mlp" else (3, 1)
    host = build_model(family, 3, 0, options=options, precision="float64")
    model = host if kind == "numpy" else Cohort(host, Dense(widths, loss), device="cpu", precision="float64")
    module = Perceptron if family == "mlp" else nn.Linear
    plain = ModuleModel(FlatModule(module, 3, 1, {}, "default", "cpu", "float64"), loss)
    tasks = weighted(make_tasks([7, 0, 5], 3, 2, model.layout.size, proximal=1))
    tasks = [replace(task, y=task.y + np.linspace(0.1, 0.3, len(task.y))) for task in tasks]
    how = Optimizer("momentum", 0.1, 3, 0.2)
    close(model.train(tasks, how), plain.train(tasks, how), 1e-10)


class Normed(nn.Module):
    """A scale and a shift of one dimension beside weights of two and four, and buffers."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 2, 1)
        self.norm = nn.BatchNorm1d(2)
        self.out = nn.Linear(2 * n_features, n_outputs)

    def forward(self, X: Tensor) -> Tensor:
        out: Tensor = self.out(self.norm(self.conv(X.unsqueeze(1))).flatten(1))
        return out


def test_decay_is_on_weights_and_on_no_bias_scale_or_buffer() -> None:
    """Labels whose gradient is 0 (weights of rows 0): what moves is what decays."""
    model = ModuleModel(FlatModule(Normed, 3, 2, {}, "default", "cpu", "float64"))
    assert {name for name in model.layout.names if model.layout.penalised(name)} == {"conv.weight", "out.weight"}
    start = model.initial(np.random.default_rng(0)) + 0.5
    rng = np.random.default_rng(1)
    task = Task(
        rng.normal(size=(5, 3)), rng.integers(0, 2, 5), start, [], 1, 0.1, np.random.default_rng, weights=np.zeros(5)
    )
    (theta,) = model.train([task], Optimizer("sgd", 0.1, 0, 0.5))
    for name, part in model.layout.slices.items():
        if model.layout.penalised(name):
            np.testing.assert_allclose(theta[part], 0.95 * start[part], atol=1e-15)
        elif name not in model.layout.measured:
            np.testing.assert_array_equal(theta[part], start[part])
