"""Every kernel against a plain loop of autograd and ``torch.optim``; a hospital's independence of its neighbours."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from raysim.core.streams import stream
from raysim.training.base import Model, Optimizer, Task
from raysim.training.kernels import batch_schedule, linear
from raysim.training.kernels.batched import Cohort, Dense
from raysim.training.kernels.modules.flat import FlatModule
from raysim.training.kernels.modules.generic import ModuleModel, Vmapped
from raysim.training.models import build_model

HIDDEN = (5, 4)


class Linear(nn.Linear):
    """Softmax regression; for two classes one logit, which is a softmax over ``(0, z)``."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__(n_features, 1 if n_outputs == 2 else n_outputs)

    def forward(self, X: Tensor) -> Tensor:
        z = super().forward(X)
        return torch.cat([torch.zeros_like(z), z], 1) if self.out_features == 1 else z


class Perceptron(nn.Module):
    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        widths = (n_features, *HIDDEN, n_outputs)
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(widths))

    def forward(self, X: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            X = layer(X).relu()
        return self.layers[-1](X)


def plain_loop(family: str, F: int, C: int, precision: str) -> ModuleModel:
    cls = Linear if family == "logistic_regression" else Perceptron
    return ModuleModel(FlatModule(cls, F, C, {}, "default", "cpu", precision))


def kernel(kind: str, family: str, F: int, C: int, precision: str, device: str = "cpu") -> Model:
    """The kernel a CPU uses (``numpy``), or those a GPU uses (``dense``, ``vmap``) on ``device``."""
    options = {} if family == "logistic_regression" else {"hidden": list(HIDDEN)}
    host = build_model(family, F, C, options=options, precision=precision)
    if kind == "numpy":
        return host
    if kind == "vmap":
        plain = plain_loop(family, F, C, precision)
        plain.module.to(device)
        return Cohort(plain, Vmapped(plain.module, plain.layout), device=device, precision=precision)
    widths = (F, 1 if C == 2 else C) if family == "logistic_regression" else (F, *HIDDEN, C)
    return Cohort(host, Dense(widths), device=device, precision=precision)


def batches_of(hospital: int) -> Callable[[int], np.random.Generator]:
    return lambda epoch: stream(7, "batch", 0, hospital, epoch)


def make_tasks(
    sizes: Sequence[int],
    F: int,
    C: int,
    P: int,
    *,
    epochs: int = 2,
    proximal: int = 0,
    rate: float = 0.1,
    dtype: Any = float,
) -> list[Task]:
    """Random tasks; the hospitals at even places see one class only, and every hospital has its own rate."""
    tasks = []
    for h, n in enumerate(sizes):
        rng = np.random.default_rng([h, n, F])
        y = np.full(n, h % C) if h % 2 == 0 else rng.integers(0, C, n)
        towards = [(0.3 * (j + 1), rng.normal(size=P).astype(dtype)) for j in range(proximal)]
        X, start = rng.normal(size=(n, F)).astype(dtype), (0.4 * rng.normal(size=P)).astype(dtype)
        for array in (X, y, start, *(target for _, target in towards)):
            array.flags.writeable = False  # as they come out of a shared object store
        tasks.append(Task(X, y, start, towards, epochs, rate * (1 + h % 3), batches_of(h)))
    return tasks


def close(a: np.ndarray, b: np.ndarray, tolerance: float) -> None:
    assert a.shape == b.shape
    assert a.dtype == b.dtype
    assert np.abs(a - b).max(initial=0) <= tolerance * (1 + np.abs(b).max(initial=0))


FAMILIES = [("logistic_regression", 2), ("logistic_regression", 3), ("mlp", 2), ("mlp", 3)]


@pytest.mark.parametrize("remembered", [1, 4096])
@pytest.mark.parametrize("family", ["logistic_regression", "mlp"])
@pytest.mark.parametrize("C", [2, 3])
def test_a_model_that_has_trained_others_trains_as_a_new_one_does(
    family: str, C: int, remembered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "REMEMBERED", remembered)
    used = kernel("numpy", family, 3, C, "float32")
    for sizes, batch_size in (([9, 20, 1], 4), ([5], 2), ([6, 0, 6], 0), ([30, 7], 8), ([20], 4)):
        tasks, optimizer = (
            make_tasks(sizes, 3, C, used.layout.size, dtype=np.float32),
            Optimizer("sgd", 0.1, batch_size),
        )
        fresh = kernel("numpy", family, 3, C, "float32").train(tasks, optimizer)
        assert used.train(tasks, optimizer).tobytes() == fresh.tobytes()
    copied = pickle.loads(pickle.dumps(used))
    assert copied.train(tasks, optimizer).tobytes() == fresh.tobytes()


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("kind", ["numpy", "dense", "vmap"])
@pytest.mark.parametrize(("family", "C"), FAMILIES)
@settings(max_examples=8, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 9), max_size=4),
    F=st.integers(1, 4),
    batch_size=st.integers(0, 6),
    epochs=st.integers(0, 3),
    proximal=st.integers(0, 2),
)
def test_kernels_equal_the_plain_loop(
    family: str,
    C: int,
    kind: str,
    optimizer: str,
    sizes: list[int],
    F: int,
    batch_size: int,
    epochs: int,
    proximal: int,
) -> None:
    plain, fast = plain_loop(family, F, C, "float64"), kernel(kind, family, F, C, "float64")
    assert plain.layout == fast.layout
    tasks = make_tasks(sizes, F, C, plain.layout.size, epochs=epochs, proximal=proximal, rate=0.02)
    terms = Optimizer(optimizer, 0.02, batch_size)
    close(fast.train(tasks, terms), plain.train(tasks, terms), 1e-10)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("kind", ["numpy", "dense"])
@pytest.mark.parametrize(("family", "C"), FAMILIES)
def test_single_precision(family: str, C: int, kind: str, optimizer: str) -> None:
    plain, fast = plain_loop(family, 20, C, "float32"), kernel(kind, family, 20, C, "float32")
    tasks = make_tasks([40, 0, 33, 1], 20, C, plain.layout.size, proximal=1, rate=0.01, dtype=np.float32)
    terms = Optimizer(optimizer, 0.01, 16)
    close(fast.train(tasks, terms), plain.train(tasks, terms), 2e-4)


@pytest.mark.parametrize(("family", "C"), FAMILIES)
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_rows_and_starts_of_another_precision_or_stride_are_taken(family: str, C: int, precision: str) -> None:
    dtype, other = np.dtype(precision), np.dtype({"float32": "float64", "float64": "float32"}[precision])
    model = kernel("numpy", family, 6, C, precision)
    tasks = make_tasks([13, 5], 6, C, model.layout.size, proximal=1, dtype=np.float32)
    strided = [
        replace(t, X=np.asfortranarray(np.repeat(t.X, 2, 0))[::2].astype(other), start=t.start.astype(other))
        for t in tasks
    ]
    tasks = [replace(t, X=t.X.astype(dtype), start=t.start.astype(dtype)) for t in tasks]
    for batch_size in (0, 4):
        terms = Optimizer("sgd", 0.1, batch_size)
        np.testing.assert_array_equal(model.train(strided, terms), model.train(tasks, terms))


@pytest.mark.parametrize("batch_size", [0, 16])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize(("family", "C"), FAMILIES)
def test_neighbours_change_no_bit(family: str, C: int, optimizer: str, batch_size: int) -> None:
    model = build_model(family, 37, C, options={"hidden": (32, 17)} if family == "mlp" else {}, precision="float32")
    tasks = make_tasks([70, 1, 0, 33, 16, 150, 7], 37, C, model.layout.size, proximal=1, dtype=np.float32)
    broken = replace(tasks[3], learning_rate=1e30)  # leaves NaN in whatever memory is shared
    terms = Optimizer(optimizer, 0.1, batch_size)
    together = model.train([*tasks, broken], terms)
    backwards = model.train([broken, *tasks[::-1]], terms)[:0:-1]
    alone = np.concatenate([model.train([task], terms) for task in tasks])
    np.testing.assert_array_equal(together[:-1], alone)
    np.testing.assert_array_equal(backwards, alone)


@pytest.mark.parametrize(("batch_size", "limit"), [(0, "CELLS"), (4, "CELLS"), (4, "SCHEDULED")])
def test_groups_of_a_cohort_change_nothing(monkeypatch: pytest.MonkeyPatch, batch_size: int, limit: str) -> None:
    model = kernel("dense", "mlp", 3, 2, "float64")
    tasks = make_tasks([9, 0, 4, 20, 1, 6], 3, 2, model.layout.size, proximal=1)
    tasks[2] = replace(tasks[2], epochs=5)
    whole = model.train(tasks, Optimizer("adam", 0.1, batch_size))
    monkeypatch.setattr(batch_schedule, limit, 3 * 2 * (batch_size or 20))
    assert len(list(batch_schedule.groups(tasks, batch_size))) > 1
    close(model.train(tasks, Optimizer("adam", 0.1, batch_size)), whole, 1e-10)


@pytest.mark.parametrize("kind", ["numpy", "dense", "loop"])
def test_a_generator_is_asked_for_once_an_epoch_and_never_for_a_full_batch(kind: str) -> None:
    model = plain_loop("mlp", 3, 2, "float64") if kind == "loop" else kernel(kind, "mlp", 3, 2, "float64")
    asked: list[int] = []

    def batches(epoch: int) -> np.random.Generator:
        asked.append(epoch)
        return np.random.default_rng(epoch)

    (task,) = make_tasks([8], 3, 2, model.layout.size, epochs=3)
    task = replace(task, batches=batches)
    whole = model.train([task], Optimizer("sgd", 0.1, 0))
    np.testing.assert_array_equal(model.train([task], Optimizer("sgd", 0.1, 8)), whole)
    assert asked == []
    model.train([task], Optimizer("sgd", 0.1, 7))
    assert asked == [0, 1, 2]


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize(("family", "C"), FAMILIES)
def test_divergence_comes_out_without_a_warning(family: str, C: int, optimizer: str) -> None:
    model = kernel("numpy", family, 3, C, "float32")
    tasks = make_tasks([0, 20], 3, C, model.layout.size, epochs=20, rate=1e38, proximal=1, dtype=np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        thetas = model.train(tasks, Optimizer(optimizer, 1e38, 4))
        model.logits(thetas[1], tasks[1].X)
    assert not np.isfinite(thetas[1]).all()
    np.testing.assert_array_equal(thetas[0], tasks[0].start)


@pytest.mark.parametrize(("family", "C"), FAMILIES)
def test_logits_equal_the_module(family: str, C: int) -> None:
    plain, fast = plain_loop(family, 4, C, "float64"), kernel("numpy", family, 4, C, "float64")
    rng = np.random.default_rng(0)
    theta, X = rng.normal(size=plain.layout.size), rng.normal(size=(9, 4))
    for rows in (X, X[:1], X[:0]):
        close(fast.logits(theta, rows), plain.logits(theta, rows), 1e-10)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU: the batched kernels on the device itself")
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("kind", ["dense", "vmap"])
@pytest.mark.parametrize(("family", "C"), FAMILIES)
def test_on_a_gpu(family: str, C: int, kind: str, optimizer: str) -> None:
    plain, fast = plain_loop(family, 20, C, "float64"), kernel(kind, family, 20, C, "float64", "cuda")
    tasks = make_tasks([40, 0, 33, 1], 20, C, plain.layout.size, proximal=2, rate=0.01)
    terms = Optimizer(optimizer, 0.01, 16)
    close(fast.train(tasks, terms), plain.train(tasks, terms), 1e-10)
