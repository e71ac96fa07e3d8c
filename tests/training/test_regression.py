"""Models of a real-valued label: every kernel against gradients written out in numpy, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from raysim.core.errors import ConfigError
from raysim.training import losses
from raysim.training.base import Model, Optimizer, Task
from raysim.training.kernels.batched import Cohort, Dense
from raysim.training.kernels.modules.generic import ModuleModel, Vmapped
from raysim.training.models import build_model

Floats = NDArray[np.float64]
F, HIDDEN = 4, (5, 3)


class Perceptron(nn.Module):
    """The family ``mlp`` as anyone would write it; without hidden layers, a linear model."""

    def __init__(self, n_features: int, n_outputs: int, hidden: Sequence[int] = HIDDEN) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise((n_features, *hidden, n_outputs)))

    def forward(self, X: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            X = layer(X).relu()
        out: Tensor = self.layers[-1](X)
        return out


def model_of(kind: str, hidden: Sequence[int], loss: str) -> Model:
    """The numpy kernel, the loop of autograd, or a kernel of a GPU on the CPU, with the same parameters."""
    family, options = ("mlp", {"hidden": list(hidden)}) if hidden else ("linear_regression", {})
    host = build_model(family, F, 0, options={**options, "loss": loss}, precision="float64")
    if kind == "numpy":
        return host
    if kind == "dense":
        return Cohort(host, Dense((F, *hidden, 1), loss), device="cpu", precision="float64")
    plain = build_model(Perceptron, F, 0, options={"hidden": hidden, "loss": loss}, precision="float64")
    if kind == "loop":
        return plain
    assert isinstance(plain, ModuleModel)
    return Cohort(plain, Vmapped(plain.module, plain.layout, loss), device="cpu", precision="float64")


def predicted(theta: Floats, X: Floats, hidden: Sequence[int]) -> tuple[list[Floats], list[Floats]]:
    """The input of every layer and the last output, and the layers' weights with the bias as last column."""
    widths, at, inputs, weights = (F, *hidden, 1), 0, [X], []
    for k, (a, b) in enumerate(pairwise(widths)):
        matrix, bias = theta[at : at + a * b].reshape(b, a), theta[at + a * b : at + a * b + b]
        at += a * b + b
        weights.append(matrix)
        z = inputs[-1] @ matrix.T + bias
        inputs.append(np.maximum(z, 0) if k < len(widths) - 2 else z)
    return inputs, weights


def gradient(theta: Floats, X: Floats, y: Floats, hidden: Sequence[int], loss: str) -> Floats:
    """Of the mean of ``(z - y)^2 / 2`` or ``|z - y|`` over the rows, by the chain rule."""
    inputs, weights = predicted(theta, X, hidden)
    error = inputs.pop()[:, 0] - y
    below = (np.where(error > 0, 1.0, np.where(error < 0, -1.0, 0.0)) if loss == "absolute" else error)[:, None]
    parts: list[Floats] = []
    for a, matrix in zip(reversed(inputs), reversed(weights), strict=True):
        parts = [(below.T @ a).ravel() / len(y), below.sum(axis=0) / len(y), *parts]
        below = (below @ matrix) * (a > 0)
    return np.concatenate(parts)


def tasks_of(P: int, sizes: Sequence[int] = (9, 1, 6)) -> list[Task]:
    tasks = []
    for h, n in enumerate(sizes):
        rng = np.random.default_rng([h, n])
        start = rng.normal(size=P)
        y = 3 * rng.normal(size=n) + 10
        tasks.append(
            Task(rng.normal(size=(n, F)), y, start, [(0.3, rng.normal(size=P))], 2, 0.02 * (h + 1), batches(h))
        )
    return tasks


def batches(hospital: int) -> Any:
    return lambda epoch: np.random.default_rng([hospital, epoch])


@pytest.mark.parametrize("kind", ["numpy", "loop", "dense", "vmap"])
@pytest.mark.parametrize("hidden", [(), HIDDEN], ids=["linear", "mlp"])
@pytest.mark.parametrize("loss", losses.REGRESSION)
@pytest.mark.parametrize("batch", [0, 4])
def test_steps_are_those_of_gradients_written_out(kind: str, hidden: tuple[int, ...], loss: str, batch: int) -> None:
    model = model_of(kind, hidden, loss)
    tasks = tasks_of(model.layout.size)
    models = model.train(tasks, Optimizer("sgd", 0.1, batch))
    for task, got in zip(tasks, models, strict=True):
        theta, n = task.start.copy(), len(task.y)
        ((weight, towards),) = task.proximal
        for epoch in range(task.epochs):
            size = min(batch or n, n)
            order = np.arange(n) if size == n else task.batches(epoch).permutation(n)
            for low in range(0, n, size):
                rows = order[low : low + size]
                step = gradient(theta, task.X[rows], task.y[rows], hidden, loss) + weight * (theta - towards)
                theta = theta - task.learning_rate * step
        np.testing.assert_allclose(got, theta, rtol=1e-10, atol=1e-12)
        inputs, _ = predicted(theta, task.X, hidden)
        np.testing.assert_allclose(model.logits(got, task.X), inputs[-1][:, 0], rtol=1e-9)


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
@pytest.mark.parametrize("hidden", [(), HIDDEN], ids=["linear", "mlp"])
@pytest.mark.parametrize("loss", losses.REGRESSION)
def test_kernels_agree_under_other_optimisers(optimizer: str, hidden: tuple[int, ...], loss: str) -> None:
    loop, *kernels = (model_of(kind, hidden, loss) for kind in ("loop", "numpy", "dense", "vmap"))
    tasks = tasks_of(loop.layout.size)
    expected = loop.train(tasks, Optimizer(optimizer, 0.1, 4))
    for kernel in kernels:
        np.testing.assert_allclose(kernel.train(tasks, Optimizer(optimizer, 0.1, 4)), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", ["numpy", "loop", "dense", "vmap"])
def test_a_row_that_is_met_exactly_has_no_absolute_gradient(kind: str) -> None:
    """Theta 0 predicts 0 for the row with label 0, whose subgradient is 0; the other two pull with signs alone."""
    model = model_of(kind, (), "absolute")
    X = np.eye(3, F)
    job = Task(X, np.array([0.0, 7.0, -0.1]), np.zeros(F + 1), [], 1, 0.3, batches(0))
    (theta,) = model.train([job], Optimizer("sgd", 0.3, 0))
    np.testing.assert_allclose(theta, [0, 0.1, -0.1, 0, 0.0], atol=1e-15)


def test_one_step_by_hand() -> None:
    # theta = 0: residuals -2 and -4, mean gradient (-2*1 - 4*3)/2 = -7 for the weight and -3 for the bias
    model = build_model("linear_regression", 1, 0, options={}, precision="float64")
    job = Task(np.array([[1.0], [3.0]]), np.array([2.0, 4.0]), np.zeros(2), [], 1, 0.1, batches(0))
    np.testing.assert_allclose(model.train([job], Optimizer("sgd", 0.1, 0)), [[0.7, 0.3]], atol=1e-15)


def test_gradient_descent_finds_least_squares_and_the_median() -> None:
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(40, F)), rng.normal(size=40)
    squared = build_model("linear_regression", F, 0, options={}, precision="float64")
    job = Task(X, y, np.zeros(F + 1), [], 800, 0.3, batches(0))
    (theta,) = squared.train([job], Optimizer("sgd", 0.3, 0))
    exact = np.linalg.lstsq(np.column_stack([X, np.ones(40)]), y, rcond=None)[0]
    np.testing.assert_allclose(theta, exact, atol=1e-9)
    absolute = build_model("linear_regression", 1, 0, options={"loss": "absolute"}, precision="float64")
    job = Task(np.zeros((5, 1)), np.array([1.0, 2.0, 3.0, 50.0, 900.0]), np.zeros(2), [], 2000, 0.01, batches(0))
    assert absolute.train([job], Optimizer("sgd", 0.01, 0))[0, 1] == pytest.approx(3, abs=0.01)


@pytest.mark.parametrize("kind", ["numpy", "loop", "dense", "vmap"])
def test_row_losses_are_what_training_minimises(kind: str) -> None:
    outputs, y = np.array([1.0, -2.0, 0.5], dtype=np.float32), np.array([3.0, -2.0, 0.0])
    np.testing.assert_allclose(model_of(kind, (), "squared").row_losses(outputs, y), [2.0, 0.0, 0.125])
    np.testing.assert_allclose(model_of(kind, (), "absolute").row_losses(outputs, y), [2.0, 0.0, 0.5])


def test_a_hospital_without_rows_stays_where_it_was() -> None:
    for hidden in ((), HIDDEN):
        model = model_of("numpy", hidden, "squared")
        (job,) = tasks_of(model.layout.size, (0,))
        np.testing.assert_array_equal(model.train([job], Optimizer("adam", 0.1, 4)), [job.start])


def test_the_default_is_the_squared_loss_in_either_precision() -> None:
    for precision in ("float32", "float64"):
        for family in ("linear_regression", "mlp"):
            model = build_model(family, F, 0, options={}, precision=precision)
            said = build_model(family, F, 0, options={"loss": "squared"}, precision=precision)
            tasks = tasks_of(model.layout.size)
            theta = model.train(tasks, Optimizer("sgd", 0.01, 4))
            assert theta.dtype == precision
            np.testing.assert_array_equal(theta, said.train(tasks, Optimizer("sgd", 0.01, 4)))


@pytest.mark.parametrize(
    ("family", "classes", "options", "message"),
    [
        (
            "logistic_regression",
            0,
            {},
            "model.name: 'logistic_regression' predicts classes, but this label is a number; use",
        ),
        (
            "linear_regression",
            2,
            {},
            "model.name: 'linear_regression' predicts a number, but this label has 2 classes; use",
        ),
        (
            "linear_regression",
            0,
            {"loss": "sqared"},
            "model.loss: 'sqared' is no loss of a real-valued label; did you mean 'sq",
        ),
        ("mlp", 0, {"loss": "log_loss"}, "model.loss: 'log_loss' is no loss of a real-valued label; "),
        (
            "mlp",
            3,
            {"loss": "absolute"},
            "model.loss: 'absolute' is for a real-valued label, but this label has classes; remove the key",
        ),
        (Perceptron, 2, {"loss": "squared"}, "model.loss: 'squared' is for a real-valued label"),
        (Perceptron, 0, {"loss": "huber"}, "model.loss: 'huber' is no loss of a real-valued label; known: "),
        ("mlp", 1, {}, "n_classes: 1 is not at least 2, nor 0 for a real-valued label"),
    ],
)
def test_what_is_refused(family: Any, classes: int, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        build_model(family, F, classes, options=options)
    assert str(error.value).startswith(message)


def test_a_family_that_does_not_say_predicts_classes() -> None:
    class Old:
        def bind(self, n_features: int, n_classes: int, **_: Any) -> None:
            raise AssertionError("bound to a label that it does not know")

    with pytest.raises(ConfigError, match="predicts classes, but this label is a number"):
        build_model(Old, F, 0, options={})


def test_modules_of_classes_keep_their_two_outputs() -> None:
    torch.manual_seed(0)
    model = build_model(Perceptron, F, 2, options={}, precision="float64")
    assert model.layout.shapes[-1] == (2,)
    assert model.logits(np.zeros(model.layout.size), np.zeros((3, F))).shape == (3,)
