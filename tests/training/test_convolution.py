"""Convolutions with ReLU, batch norm and pooling by Winograd's algorithm, against torch's layers."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from raysim.core.streams import stream
from raysim.training.base import Optimizer, Task
from raysim.training.kernels.modules import visit
from raysim.training.kernels.modules.flat import FlatModule
from raysim.training.kernels.modules.generic import ModuleModel
from raysim.training.networks.convolution import NormedConvolution, PooledConvolutions, Winograd
from raysim.training.networks.numpy_layers import by_numpy


def layers(channels: tuple[int, ...], dtype: torch.dtype) -> tuple[PooledConvolutions, nn.Sequential]:
    """Ours, and torch's layers with their parameters, some of whose scales are negative or zero."""
    torch.manual_seed(0)
    ours = PooledConvolutions(*channels).to(dtype)
    torchs: list[nn.Module] = []
    for layer in ours.layers:
        assert isinstance(layer, NormedConvolution)
        with torch.no_grad():
            layer.norm.weight.copy_(torch.linspace(-1, 1, len(layer.norm.weight)))
            layer.norm.bias.normal_()
            layer.convolution.bias[0] = -100  # all of a map is zero
        torchs += [copy.deepcopy(layer.convolution), nn.ReLU(), copy.deepcopy(layer.norm)]
    return ours, nn.Sequential(*torchs, nn.MaxPool2d(2))


def passes(module: nn.Module, x: Tensor, needed: bool = True) -> list[Tensor]:
    """Outputs, gradients and buffers after a step in a visit's loop."""
    rows = x.clone(memory_format=torch.channels_last).requires_grad_(needed)
    with by_numpy(module, True):
        y = module(rows)
        torch.manual_seed(1)
        torch.autograd.backward((y * torch.randn_like(y)).sum())
    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    return [y.detach(), *gradients, *module.buffers(), *([rows.grad] if rows.grad is not None else [])]


@pytest.mark.parametrize(
    ("n", "high", "wide", "channels"),
    [(2, 8, 4, (3, 5)), (1, 4, 12, (18, 1)), (67, 8, 4, (16, 6, 5)), (5, 16, 8, (3, 17, 4)), (2, 36, 32, (1, 2))],
)
def test_a_step_is_that_of_torchs_layers(n: int, high: int, wide: int, channels: tuple[int, ...]) -> None:
    ours, torchs = layers(channels, torch.float64)
    x = torch.randn(n, channels[0], high, wide, dtype=torch.float64)
    for _ in range(2):  # running statistics go on
        results = passes(ours, x), passes(torchs, x)
        assert len(results[0]) == 1 + (4 + 3) * (len(channels) - 1) + 1
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_in_float32_it_is_as_near_to_float64_as_torch() -> None:
    x = torch.randn(32, 16, 8, 4, dtype=torch.float64)
    ours, torchs = layers((16, 6, 5), torch.float64)
    exact = passes(torchs, x)
    for a, b in zip(passes(ours.float(), x.float()), exact, strict=True):
        assert (a.double() - b).norm() <= 1e-3 * b.double().norm()


def test_variances_in_float32_are_nearer_than_torchs_where_means_are_large() -> None:
    ours, torchs = layers((16, 3), torch.float64)
    for convolution, norm in (ours.layers[0].children(), (torchs[0], torchs[2])):
        assert isinstance(norm, nn.BatchNorm2d)
        nn.init.constant_(convolution.bias, 10_000)
        norm.momentum = 1
    x = torch.randn(512, 16, 4, 4, dtype=torch.float64)
    exact, mine, theirs = (
        passes(module.to(dtype), x.to(dtype))[-3]  # the running variance
        for module, dtype in ((torchs, torch.float64), (ours, torch.float32), (torchs, torch.float32))
    )
    assert 4 * (mine - exact).norm() < (theirs - exact).norm()


def test_parameters_may_lie_in_memory_in_any_order() -> None:
    ours, torchs = layers((16, 6, 5), torch.float64)
    x = torch.randn(7, 16, 8, 4, dtype=torch.float64)
    expected = passes(torchs, x)
    ours.to(memory_format=torch.channels_last)
    convolution = ours.layers[0].convolution
    assert isinstance(convolution, nn.Conv2d)
    assert convolution.bias is not None
    convolution.bias.data = convolution.bias.data.repeat_interleave(2)[::2]
    for a, b in zip(passes(ours, x), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_images_without_a_gradient_get_none() -> None:
    ours, torchs = layers((16, 6, 5), torch.float64)
    x = torch.randn(3, 16, 8, 4, dtype=torch.float64)
    results = passes(ours, x, needed=False), passes(torchs, x, needed=False)
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_the_first_of_equals_is_pooled() -> None:
    """Images that are alike everywhere: all norms of a window are equal, and the gradient is that of the first."""
    ours, torchs = layers((3, 5), torch.float64)
    with torch.no_grad():
        for weight in (ours.layers[0].convolution.weight, torchs[0].weight):
            weight[:, :, [0, 0, 0, 1, 1, 2, 2, 2], [0, 1, 2, 0, 2, 0, 1, 2]] = 0
    x = torch.randint(1, 3, (4, 1, 2, 2), dtype=torch.float64).repeat(1, 3, 4, 2)
    x = x[:, :, [0, 0, 0, 0, 1, 1, 1, 1]][..., [0, 0, 1, 1]]
    for a, b in zip(passes(ours, x), passes(torchs, x), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("channels", [(16, 3), (16, 4, 3)])
@pytest.mark.parametrize("where", ["weight", "image"])
def test_what_is_no_number_stays_none(where: str, channels: tuple[int, ...]) -> None:
    ours, torchs = layers(channels, torch.float32)
    x = torch.randn(4, 16, 4, 4)
    with torch.no_grad():
        if where == "image":
            x[0, 0, 0, 0] = np.nan
        else:
            ours.layers[0].convolution.weight[1, 0, 0, 0] = torchs[0].weight[1, 0, 0, 0] = np.nan
    mine, theirs = passes(ours, x)[0], passes(torchs, x)[0]
    assert torch.isnan(theirs).any()
    assert torch.equal(torch.isnan(mine), torch.isnan(theirs))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each forward pass by Winograd's algorithm."""
    made: list[int] = []
    forward: Callable[..., Any] = Winograd.forward
    monkeypatch.setattr(Winograd, "forward", staticmethod(lambda *given: made.append(1) or forward(*given)))
    return made


def test_numpy_computes_where_the_layer_trains_alone(calls: list[int]) -> None:
    layer, x = PooledConvolutions(16, 3), torch.randn(2, 16, 4, 4)
    layer(x)
    with by_numpy(layer, True):
        with torch.no_grad():
            layer(x)
        with torch.autocast("cpu", torch.bfloat16):
            layer(x)
        layer.eval()
        layer(x)
        assert not calls
        layer.train()
        layer(x)
    assert len(calls) == 1
    layer(x)
    with contextlib.suppress(KeyError), by_numpy(nn.Sequential(layer), True):
        raise KeyError
    layer(x)
    assert len(calls) == 1


@pytest.mark.parametrize("changed", [0, 1])
@pytest.mark.parametrize(
    ("change", "made"),
    [
        (lambda norm: setattr(norm, "eps", 0.5), 1),
        (lambda norm: setattr(norm, "momentum", 0.3), 1),
        (lambda norm: setattr(norm, "momentum", None), 0),
        (lambda norm: norm.eval(), 0),
        (lambda norm: setattr(norm, "track_running_stats", False), 0),
    ],
)
def test_norms_may_differ(
    change: Callable[[nn.BatchNorm2d], object], made: int, changed: int, calls: list[int]
) -> None:
    ours, torchs = layers((16, 6, 5), torch.float64)
    change(ours.norms()[changed])
    change(torchs[2 + 3 * changed])
    x = torch.randn(2, 16, 8, 4, dtype=torch.float64)
    results = [], []
    for _ in range(2):
        for module, found in zip((ours, torchs), results, strict=True):
            found += passes(module, x)
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    assert len(calls) == 2 * made


def test_norms_without_parameters_are_torchs(calls: list[int]) -> None:
    ours, torchs = layers((3, 4), torch.float64)
    ours.layers[0].norm, torchs[2] = (nn.BatchNorm2d(4, affine=False, dtype=torch.float64) for _ in range(2))
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    for a, b in zip(passes(ours, x), passes(torchs, x), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    assert not calls


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((0, 3, 8, 8), torch.float32),
        ((2, 3, 6, 8), torch.float32),
        ((2, 3, 8, 6), torch.float64),
        ((2, 3, 8, 8), torch.bfloat16),
        ((2, 3, 8, 8), torch.float16),
    ],
)
def test_torch_computes_what_winograd_does_not(shape: tuple[int, ...], dtype: torch.dtype, calls: list[int]) -> None:
    ours, torchs = layers((3, 4), dtype)
    x = torch.randn(shape).to(dtype)
    for a, b in zip(passes(ours, x), passes(torchs, x), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    assert not calls


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((2, 3, 8, 8), torch.float64),
        ((2, 3, 8, 8), torch.int64),
        ((2, 3, 8, 8), torch.float16),
        ((2, 5, 8, 8), torch.float32),
        ((3, 8, 8), torch.float32),
        ((2, 3, 0, 8), torch.float32),
    ],
)
def test_what_torch_refuses_is_refused(shape: tuple[int, ...], dtype: torch.dtype, calls: list[int]) -> None:
    ours, torchs = layers((3, 4), torch.float32)
    x, messages = torch.ones(shape).to(dtype), []
    for module in (ours, torchs):
        with by_numpy(module, True), pytest.raises((RuntimeError, ValueError)) as error:
            module(x)
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    assert not calls


def test_images_may_change_their_size_and_type_and_layers_be_copied(calls: list[int]) -> None:
    layer = PooledConvolutions(3, 5)
    for dtype, shape in ((torch.float32, (2, 3, 8, 4)), (torch.float32, (2, 3, 4, 8)), (torch.float64, (1, 3, 8, 4))):
        layer = copy.deepcopy(layer.to(dtype))
        x = torch.randn(*shape).to(dtype)
        plain = copy.deepcopy(layer)
        with by_numpy(layer, True):
            torch.testing.assert_close(layer(x), plain(x), rtol=1e-4, atol=1e-4)
    assert len(calls) == 3


class Small(nn.Module):
    """Two convolutions and a layer above them."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.block, self.head = PooledConvolutions(16, 6, 5), nn.Linear(5 * 4 * 2, n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.block(x.reshape(-1, 16, 8, 4)).flatten(1))
        return outputs


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_network_trains_as_with_torchs_layers(
    optimizer: str, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ModuleModel(FlatModule(Small, 512, 10, {}, "default", "cpu", "float64"))
    rng = np.random.default_rng(3)
    X, y, start = rng.random((9, 512)), rng.integers(0, 10, 9), model.initial(rng)
    task = Task(X, y, start, [(0.1, start + 1)], 2, 0.001, lambda epoch: stream(1, "batch", epoch))
    (ours,) = model.train([task], Optimizer(optimizer, 0.001, 4))
    assert len(calls) == 2 * 2  # batches of more than one row, epochs
    monkeypatch.setattr(visit, "by_numpy", lambda module, wanted: by_numpy(module, False))
    (torchs,) = model.train([task], Optimizer(optimizer, 0.001, 4))
    assert len(calls) == 4
    np.testing.assert_allclose(ours, torchs, rtol=0, atol=1e-6 if optimizer == "adam" else 1e-9)
