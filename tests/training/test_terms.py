"""A linear term and frozen parameters: every kernel against the plain loop, and both against what they mean."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysim.training.base import Optimizer, Task
from tests.training.test_kernels import FAMILIES, close, kernel, make_tasks, plain_loop


def with_terms(tasks: list[Task], linear: bool, frozen: str) -> list[Task]:
    """Of each task, its own linear term; frozen parameters at random, all, or none, and none at every third task."""
    changed = []
    for h, task in enumerate(tasks):
        rng, size = np.random.default_rng([5, h]), len(task.start)
        masks = {"none": None, "some": rng.random(size) < 0.5, "all": np.ones(size, np.bool_)}
        mask = None if h % 3 == 2 else masks[frozen]
        changed.append(replace(task, linear=rng.normal(size=size) if linear else None, frozen=mask))
    return changed


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("kind", ["numpy", "dense", "vmap"])
@pytest.mark.parametrize(("family", "C"), FAMILIES)
@settings(max_examples=10, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 9), max_size=4),
    batch_size=st.integers(0, 6),
    epochs=st.integers(0, 3),
    proximal=st.integers(0, 1),
    linear=st.booleans(),
    frozen=st.sampled_from(["none", "some", "all"]),
)
def test_kernels_equal_the_plain_loop(
    family: str,
    C: int,
    kind: str,
    optimizer: str,
    sizes: list[int],
    batch_size: int,
    epochs: int,
    proximal: int,
    linear: bool,
    frozen: str,
) -> None:
    plain, fast = plain_loop(family, 3, C, "float64"), kernel(kind, family, 3, C, "float64")
    tasks = make_tasks(sizes, 3, C, plain.layout.size, epochs=epochs, proximal=proximal, rate=0.02)
    tasks = with_terms(tasks, linear, frozen)
    terms = Optimizer(optimizer, 0.02, batch_size)
    models = fast.train(tasks, terms)
    close(models, plain.train(tasks, terms), 1e-10)
    for task, theta in zip(tasks, models, strict=True):
        if task.frozen is not None:
            np.testing.assert_array_equal(theta[task.frozen], task.start[task.frozen])
            assert not len(task.y) or not epochs or task.frozen.all() or (theta != task.start).any()


@pytest.mark.parametrize("kind", ["numpy", "dense", "vmap", "loop"])
@pytest.mark.parametrize(("family", "C"), FAMILIES)
def test_the_linear_term_is_added_to_every_gradient(kind: str, family: str, C: int) -> None:
    """One step with it is one without, less the rate times it."""
    model = plain_loop(family, 3, C, "float64") if kind == "loop" else kernel(kind, family, 3, C, "float64")
    (task,) = make_tasks([6], 3, C, model.layout.size, epochs=1, rate=0.3)
    linear = np.random.default_rng(2).normal(size=model.layout.size)
    terms = Optimizer("sgd", 0.3, 0)
    plain, pushed = model.train([task, replace(task, linear=linear)], terms)
    np.testing.assert_allclose(pushed, plain - task.learning_rate * linear, atol=1e-12)


@pytest.mark.parametrize("kind", ["numpy", "dense", "vmap", "loop"])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_what_is_not_frozen_descends_as_if_the_rest_were_constants(kind: str, optimizer: str) -> None:
    """A frozen intercept is a margin's constant offset: logistic regression by hand, three batches an epoch."""
    family, C = "logistic_regression", 2
    model = plain_loop(family, 2, C, "float64") if kind == "loop" else kernel(kind, family, 2, C, "float64")
    (task,) = make_tasks([7], 2, C, 3, epochs=2, rate=0.05)
    (theta,) = model.train([replace(task, frozen=np.array([False, False, True]))], Optimizer(optimizer, 0.05, 3))
    w, b = task.start[:2].copy(), task.start[2]
    v, m, s, t = np.zeros(2), np.zeros(2), np.zeros(2), 0
    for epoch in range(2):
        order = task.batches(epoch).permutation(7)
        for low in range(0, 7, 3):
            X, y = task.X[order[low : low + 3]], task.y[order[low : low + 3]]
            g, t = X.T @ (1 / (1 + np.exp(-X @ w - b)) - y) / len(y), t + 1
            if optimizer == "adam":
                m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g * g
                w = w - 0.05 * (m / (1 - 0.9**t)) / (np.sqrt(s / (1 - 0.999**t)) + 1e-8)
            else:
                v = (0.9 if optimizer == "momentum" else 0.0) * v + g
                w = w - 0.05 * v
    np.testing.assert_allclose(theta, np.append(w, b), atol=1e-10)
