"""Dense layers whose products are numpy's, against torch's own."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from raysim.core.streams import stream
from raysim.training.base import Optimizer, Task
from raysim.training.kernels.modules import visit
from raysim.training.models import build_model
from raysim.training.networks import dense
from raysim.training.networks.dense import Dense, Product
from raysim.training.networks.images import CifarCnn
from raysim.training.networks.numpy_layers import by_numpy


def layers() -> tuple[Dense, nn.Linear, Tensor]:
    torch.manual_seed(0)
    ours, plain = Dense(5, 3).double(), nn.Linear(5, 3).double()
    plain.load_state_dict(ours.state_dict())
    return ours, plain, torch.randn(4, 5, dtype=torch.float64)


@pytest.mark.parametrize("needed", [True, False])
def test_outputs_and_gradients_are_those_of_linear(needed: bool) -> None:
    ours, plain, x = layers()
    seed = torch.randn(4, 3, dtype=torch.float64)
    results = []
    for layer in (ours, plain):
        rows = x.clone().requires_grad_(needed)
        with by_numpy(layer, True):
            z = layer(rows)
            torch.autograd.backward((z * seed).sum())
        results.append([z.detach(), layer.weight.grad, layer.bias.grad, *([rows.grad] if needed else [])])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "x", [torch.ones(4, 5), torch.ones(4, 6).double(), torch.ones(5).double(), torch.ones(2, 3, 5).double()]
)
def test_what_is_no_batch_is_computed_or_refused_by_torch(x: Tensor) -> None:
    ours, plain, _ = layers()
    said = []
    with by_numpy(ours, True):
        for layer in (ours, plain):
            try:
                said.append(layer(x).tolist())
            except RuntimeError as error:
                said.append(str(error))
    assert said[0] == said[1]


def test_a_layer_without_bias_has_none() -> None:
    ours = Dense(5, 3, bias=False)
    x = torch.ones(4, 5)
    with by_numpy(ours, True):
        assert torch.equal(ours(x), x @ ours.weight.T)


def test_numpy_computes_for_the_while_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, _, x = layers()
    called = []
    forward = Product.forward
    monkeypatch.setattr(Product, "forward", staticmethod(lambda *given: called.append(1) or forward(*given)))
    ours(x)
    with by_numpy(ours, False):
        ours(x)
    assert not called
    with contextlib.suppress(KeyError), by_numpy(nn.Sequential(ours), True):
        ours(x)
        raise KeyError
    assert len(called) == 1
    ours(x)
    assert len(called) == 1


def test_products_under_autocast_are_torchs() -> None:
    layer = Dense(5, 3)
    with by_numpy(layer, True), torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.randn(4, 5)).dtype == torch.bfloat16


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_network_trains_as_with_torchs_products(optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model("fashion_cnn", 784, 10, options={"dense": 6}, precision="float64")
    rng = np.random.default_rng(3)
    X, y, start = rng.random((9, 784)), rng.integers(0, 10, 9), model.initial(rng)
    task = Task(X, y, start, [(0.1, start + 1)], 2, 0.01, lambda epoch: stream(1, "batch", epoch))
    monkeypatch.setattr(visit, "WrittenModule", CifarCnn)  # which the network is not, so that autograd derives
    calls = []
    product = Product.apply
    monkeypatch.setattr(dense.Product, "apply", lambda *given: calls.append(1) or product(*given))
    (ours,) = model.train([task], Optimizer(optimizer, 0.01, 4))
    assert len(calls) == 2 * 3 * 2  # layers, batches, epochs
    monkeypatch.setattr(visit, "by_numpy", lambda module, wanted: by_numpy(module, False))
    (torchs,) = model.train([task], Optimizer(optimizer, 0.01, 4))
    assert len(calls) == 12
    np.testing.assert_allclose(ours, torchs, rtol=0, atol=1e-11)
