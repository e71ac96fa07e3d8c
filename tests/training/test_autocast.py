"""Training with products in bfloat16 (``model.autocast``)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from raysim.core.errors import ConfigError
from raysim.core.streams import stream
from raysim.training.base import Optimizer, Task
from raysim.training.models import build_model
from raysim.training.networks.images import FashionCnn

SMALL = {"dense": 6}


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def task(model: Any, n: int, hospital: int = 0) -> Task:
    draws = np.random.default_rng(hospital)
    X, y = draws.random((n, 784), dtype=np.float32), draws.integers(0, 10, n)
    start = model.initial(rng()).astype(np.float32)
    return Task(X, y, start, [], 2, 0.05, lambda epoch: stream(1, "batch", hospital, epoch))


def fashion(**options: object) -> Any:
    return build_model("fashion_cnn", 784, 10, options=SMALL | options)


def by_hand(given: Task, size: int) -> np.ndarray:
    """Plain gradient descent, the network's calls in torch's own autocast and all else in float32."""
    net, at = FashionCnn(784, 10, dense=6), 0
    for parameter in net.parameters():
        piece = given.start[at : at + parameter.numel()]
        parameter.data = torch.from_numpy(piece.copy()).reshape(parameter.shape)
        at += parameter.numel()
    for epoch in range(given.epochs):
        order = given.batches(epoch).permutation(len(given.y))
        for low in range(0, len(order), size):
            rows = order[low : low + size]
            with torch.autocast("cpu", torch.bfloat16):
                outputs = net(torch.from_numpy(given.X[rows]))
            assert outputs.dtype == torch.bfloat16
            loss = nn.functional.cross_entropy(outputs.float(), torch.from_numpy(given.y[rows]))
            net.zero_grad()
            torch.autograd.backward(loss)
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter -= given.learning_rate * parameter.grad
    return np.concatenate([parameter.detach().numpy().ravel() for parameter in net.parameters()])


def test_steps_are_those_of_torchs_autocast_with_parameters_in_float32() -> None:
    terms, given = Optimizer("sgd", 0.05, 4), task(fashion(), 10)
    (halves,), (whole,) = (model.train([given], terms) for model in (fashion(autocast="bfloat16"), fashion()))
    expected = by_hand(given, 4)
    assert halves.dtype == np.float32
    np.testing.assert_allclose(halves, expected, rtol=0, atol=1e-6)
    apart = np.abs(whole - expected).max()
    assert 1e-5 < apart < 0.1 * np.abs(whole - given.start).max()


def test_evaluation_is_in_float32() -> None:
    theta, X = fashion().initial(rng()).astype(np.float32), rng().random((7, 784), dtype=np.float32)
    np.testing.assert_array_equal(fashion(autocast="bfloat16").logits(theta, X), fashion().logits(theta, X))


def test_a_hospital_trains_alike_alone_and_among_others() -> None:
    model, terms = fashion(autocast="bfloat16"), Optimizer("adam", 0.01, 4)
    tasks = [task(model, n, h) for h, n in enumerate((5, 1, 9))]
    together = model.train(tasks, terms)
    for trained, alone in zip(together, tasks, strict=True):
        np.testing.assert_array_equal(trained, model.train([alone], terms)[0])


@pytest.mark.parametrize("name", ["text_lstm", "text_dense"])
def test_text_networks_train_so_too(name: str) -> None:
    options = {"vocabulary": 30, "dimension": 4}
    model = build_model(name, 6, 3, options=options | {"autocast": "bfloat16"})
    X, y = rng().integers(0, 30, (8, 6)).astype(np.float32), rng().integers(0, 3, 8)
    start = model.initial(rng()).astype(np.float32)
    given = Task(X, y, start, [], 2, 0.05, lambda epoch: stream(1, "batch", epoch))
    terms = Optimizer("sgd", 0.05, 4)
    halves, whole = (m.train([given], terms)[0] for m in (model, build_model(name, 6, 3, options=options)))
    assert 0 < np.abs(halves - whole).max() < 0.1 * np.abs(whole - start).max()


@pytest.mark.parametrize(
    ("value", "precision", "message"),
    [
        ("float16", "float32", "^model.autocast: 'float16' is not bfloat16; write bfloat16, or remove the key"),
        (True, "float32", "^model.autocast: True is not bfloat16"),
        ("bfloat16", "float64", "^model.autocast: bfloat16 needs training.precision float32, not float64"),
    ],
)
def test_what_it_cannot_be_is_said(value: object, precision: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_model("fashion_cnn", 784, 10, options=SMALL | {"autocast": value}, precision=precision)


def test_kernels_by_hand_have_no_such_option() -> None:
    with pytest.raises(ConfigError, match=r"^model\.autocast: is not an option of MLP"):
        build_model("mlp", 4, 2, options={"autocast": "bfloat16"})
