"""What kernels are given may be read-only: arrays that come through Ray's object store are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from raysim.core.streams import stream
from raysim.training.base import Model, Moments, Optimizer, Task
from raysim.training.models import build_model
from tests.training.families import MODELS
from tests.training.test_private_steps import FEATURES, task_of

FAMILIES = [
    ("logistic_regression", 5, 2, {}),
    ("logistic_regression", 5, 3, {}),
    ("linear_regression", 5, 0, {}),
    ("mlp", 5, 2, {"hidden": [4]}),
    ("mlp", 5, 3, {"hidden": [4, 3]}),
    ("mlp", 5, 0, {"hidden": [4]}),
    ("mlp", 100, 2, {"hidden": [256, 128]}),
    ("fashion_cnn", 784, 3, {"dense": 6}),
    ("text_dense", 6, 2, {"vocabulary": 9, "dimension": 2}),
    ("text_lstm", 6, 2, {"vocabulary": 9, "dimension": 2}),
]


def fixed(array: NDArray[Any]) -> NDArray[Any]:
    """A copy that raises where it is written to."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def tasks(model: Model, features: int, classes: int, indices: bool) -> tuple[Task, Task]:
    """A task with everything that all families take, and the same one read-only."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 9, (7, features)).astype(float) if indices else rng.normal(size=(7, features))
    y = rng.integers(0, classes, 7) if classes else rng.normal(size=7)
    start = model.initial(rng)
    like = rng.normal(size=(3, len(start)))
    task = Task(
        X=X,
        y=y,
        start=start,
        proximal=[(0.1, like[0])],
        epochs=2,
        learning_rate=0.01,
        batches=lambda epoch: stream(0, "batch", epoch),
        linear=like[1],
        frozen=like[2] > 1,
        weights=rng.random(7),
    )
    read = replace(
        task,
        X=fixed(X),
        y=fixed(y),
        start=fixed(start),
        proximal=[(0.1, fixed(like[0]))],
        linear=fixed(like[1]),
        frozen=fixed(like[2] > 1),
        weights=fixed(np.asarray(task.weights)),
    )
    return task, read


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize(("family", "features", "classes", "options"), FAMILIES)
def test_training_and_outputs_take_arrays_that_are_read_only(
    family: str, features: int, classes: int, options: dict[str, Any], optimizer: str
) -> None:
    model = build_model(family, features, classes, options=options, precision="float64")
    terms = Optimizer(optimizer, 0.01, 3, 0.01)
    found = []
    for task in tasks(model, features, classes, family.startswith("text")):
        kept = np.copy if task.X.flags.writeable else fixed
        moments = Moments()
        (theta,) = model.train([replace(task, moments=moments)], terms)
        first, second = (None if moment is None else kept(moment) for moment in (moments.first, moments.second))
        moments = Moments(first, second, moments.steps)
        (theta,) = model.train([replace(task, start=kept(theta), moments=moments)], terms)
        theta = kept(theta)
        outputs, of_many = model.logits(theta, task.X), getattr(model, "logits_of_many", None)
        if of_many is not None:
            outputs = np.append(outputs, of_many(theta, task.X))
        found.append((theta, outputs, model.row_losses(model.logits(theta, task.X), task.y)))
    for written, read in zip(*found, strict=True):
        np.testing.assert_array_equal(written, read)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("family", "classes", "options"), MODELS)
def test_private_steps_take_arrays_that_are_read_only(
    family: str, classes: int, options: dict[str, Any], weighted: bool
) -> None:
    model = build_model(family, FEATURES, classes, options=options, precision="float64")
    task = task_of(model, classes, [2, 1, 3, 1], weighted=weighted)
    weights = None if task.weights is None else fixed(task.weights)
    read = replace(task, X=fixed(task.X), y=fixed(task.y), start=fixed(task.start), weights=weights)
    (theta,), (other,) = (model.train([each], Optimizer("sgd", 0.1, 0)) for each in (task, read))
    np.testing.assert_array_equal(theta, other)
    assert (theta != task.start).any()
