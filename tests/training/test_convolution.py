"""Convolutions with ReLU, batch norm and pooling by Winograd's algorithm, against direct sums and torch's layers."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from raysim.core.streams import stream
from raysim.training.base import Optimizer, Task
from raysim.training.kernels.modules import visit
from raysim.training.models import build_model
from raysim.training.networks import compiled, convolution, winograd
from raysim.training.networks.convolution import NormedConvolution, Steps, Winograd
from raysim.training.networks.numpy_layers import by_numpy
from raysim.training.networks.written import Array


def direct(x: Array, weight: Array, bias: Array) -> Array:
    """``max(convolution, 0)`` of images with channels last, as the sum of nine products."""
    _, high, wide, _ = x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifts = [(i, j) for i in range(3) for j in range(3)]
    total = sum(padded[:, i : i + high, j : j + wide] @ weight[:, :, i, j].T for i, j in shifts)
    return np.maximum(total + bias, 0)


@pytest.mark.parametrize(
    ("n", "high", "wide", "channels", "maps"),
    [(1, 4, 4, 16, 1), (3, 8, 4, 3, 5), (2, 4, 12, 17, 16), (9, 16, 16, 20, 8), (70, 4, 4, 16, 3), (1, 36, 32, 1, 2)],
)
def test_outputs_are_those_of_direct_sums(n: int, high: int, wide: int, channels: int, maps: int) -> None:
    rng = np.random.default_rng(n)
    x, weight = rng.normal(size=(n, high, wide, channels)), rng.normal(size=(maps, channels, 3, 3))
    bias = rng.normal(size=maps)
    y, mean, variance = Steps(high, wide, channels, maps, False, x.dtype).convolve(x, weight, bias)
    expected = direct(x, weight, bias)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-11)
    np.testing.assert_allclose(mean, expected.mean((0, 1, 2)), rtol=0, atol=1e-11)
    np.testing.assert_allclose(variance, expected.var((0, 1, 2)), rtol=0, atol=1e-10)


def test_a_tile_multiplies_at_36_points() -> None:
    """The polynomials of Lavin and Gray: at a point t a row of weights is its value there, times what divides it."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(2, 3, 3, 3))
    divided = np.array([4, -6, -6, 24, 24, 1])
    values = np.array([[1, t, t * t] for t in (0, 1, -1, 2, -2)] + [[0, 0, 1]]) / divided[:, None]
    expected = np.einsum("pi,qj,baij->pqab", values, values, weight).reshape(36, 3, 2)
    np.testing.assert_allclose(winograd.of_weights(weight, np.empty((36, 3, 2))), expected, rtol=0, atol=1e-14)


def layers(channels: int, maps: int, pooled: bool, dtype: torch.dtype) -> tuple[NormedConvolution, nn.Module]:
    """The layer, and torch's layers with its parameters, some of whose scales are negative or zero."""
    torch.manual_seed(0)
    ours = NormedConvolution(channels, maps, pooled).to(dtype)
    with torch.no_grad():
        ours.norm.weight.copy_(torch.linspace(-1, 1, maps))
        ours.norm.bias.normal_()
        ours.convolution.bias[0] = -100  # all of a map is zero
    pool = [nn.MaxPool2d(2)] if pooled else []
    return ours, nn.Sequential(copy.deepcopy(ours.convolution), nn.ReLU(), copy.deepcopy(ours.norm), *pool)


def passes(module: nn.Module, x: Tensor, needed: bool = True) -> list[Tensor]:
    """Outputs, gradients and buffers after a step in a visit's loop."""
    rows = x.clone(memory_format=torch.channels_last).requires_grad_(needed)
    with by_numpy(module, True):
        y = module(rows)
        torch.manual_seed(1)
        torch.autograd.backward((y * torch.randn_like(y)).sum())
    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    return [y.detach(), *gradients, *module.buffers(), *([rows.grad] if rows.grad is not None else [])]


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize(("n", "channels"), [(2, 3), (7, 18), (67, 16)])
def test_a_step_is_that_of_torchs_layers(n: int, channels: int, pooled: bool) -> None:
    ours, torchs = layers(channels, 5, pooled, torch.float64)
    x = torch.randn(n, channels, 8, 4, dtype=torch.float64)
    for _ in range(2):  # running statistics go on
        results = passes(ours, x), passes(torchs, x)
        assert len(results[0]) == 1 + 4 + 3 + 1
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("pooled", [True, False])
def test_in_float32_it_is_as_near_to_float64_as_torch(pooled: bool) -> None:
    x = torch.randn(32, 32, 16, 16, dtype=torch.float64)
    ours, torchs = layers(32, 64, pooled, torch.float64)
    exact = passes(torchs, x)
    for a, b in zip(passes(ours.float(), x.float()), exact, strict=True):
        assert (a.double() - b).norm() <= 2e-4 * b.double().norm()


def test_images_without_a_gradient_get_none() -> None:
    ours, torchs = layers(3, 4, True, torch.float64)
    x = torch.randn(3, 3, 4, 8, dtype=torch.float64)
    results = passes(ours, x, needed=False), passes(torchs, x, needed=False)
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_the_first_of_equals_is_pooled() -> None:
    """Images that are alike everywhere: all norms of a window are equal, and the gradient is that of the first."""
    ours, torchs = layers(16, 4, True, torch.float64)
    with torch.no_grad():
        for module in (ours.convolution, torchs[0]):  # type: ignore[index]
            module.weight[:, :, [0, 0, 0, 1, 1, 2, 2, 2], [0, 1, 2, 0, 2, 0, 1, 2]] = 0
    x = torch.randint(1, 3, (4, 1, 2, 2), dtype=torch.float64).repeat(1, 16, 4, 4)
    x = x[:, :, [0, 0, 0, 0, 1, 1, 1, 1]][..., [0, 0, 0, 0, 1, 1, 1, 1]]
    for a, b in zip(passes(ours, x), passes(torchs, x), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("where", ["weight", "image"])
def test_what_is_no_number_stays_none(where: str, pooled: bool) -> None:
    ours, torchs = layers(16, 3, pooled, torch.float32)
    x = torch.randn(4, 16, 4, 4)
    with torch.no_grad():
        if where == "image":
            x[0, 0, 0, 0] = np.nan
        else:
            ours.convolution.weight[1, 0, 0, 0] = torchs[0].weight[1, 0, 0, 0] = np.nan  # type: ignore[index]
    mine, theirs = passes(ours, x)[0], passes(torchs, x)[0]
    assert torch.isnan(theirs).any()
    assert torch.equal(torch.isnan(mine), torch.isnan(theirs))


def test_no_bit_depends_on_what_was_computed_before() -> None:
    _, high, wide, channels = shape = 10, 8, 8, 16
    rng = np.random.default_rng(1)
    x, weight, bias = (rng.normal(size=s).astype(np.float32) for s in (shape, (20, channels, 3, 3), (20,)))
    by_y, of_norm = rng.normal(size=(10, 4, 4, 20)).astype(np.float32), rng.normal(size=100).astype(np.float32)

    def results(steps: Steps) -> list[Array]:
        y, *moments = steps.convolve(x, weight, bias)
        by = steps.by_convolution(by_y, x, weight, y, of_norm, by_images=True)
        return [y, *moments, *(a for a in by if a is not None)]

    fresh, used = (Steps(high, wide, channels, 20, True, x.dtype) for _ in range(2))
    large = np.full((30, high, wide, channels), 1e10, np.float32)
    used.by_convolution(
        np.full((30, 4, 4, 20), 1e10, np.float32),
        large,
        weight,
        np.abs(np.resize(large, (30, 8, 8, 20))),
        of_norm,
        True,
    )
    for a, b in zip(results(fresh), results(used), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each forward pass by Winograd's algorithm."""
    made: list[int] = []
    forward: Callable[..., Any] = Winograd.forward
    monkeypatch.setattr(Winograd, "forward", staticmethod(lambda *given: made.append(1) or forward(*given)))
    return made


def test_numpy_computes_where_the_layer_trains_alone(calls: list[int]) -> None:
    layer, x = NormedConvolution(3, 4), torch.randn(2, 3, 4, 4)
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


def test_images_may_change_their_size_and_type_and_layers_be_copied(calls: list[int]) -> None:
    layer = NormedConvolution(3, 4)
    for dtype, shape in ((torch.float32, (2, 3, 4, 8)), (torch.float32, (2, 3, 8, 4)), (torch.float64, (1, 3, 8, 4))):
        layer = copy.deepcopy(layer.to(dtype))
        x = torch.randn(*shape).to(dtype)
        plain = copy.deepcopy(layer)
        with by_numpy(layer, True):
            torch.testing.assert_close(layer(x), plain(x), rtol=1e-4, atol=1e-4)
    assert len(calls) == 3


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_network_trains_as_with_torchs_layers(
    optimizer: str, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build_model("cifar_cnn", 3072, 10, options={"dense": 6}, precision="float64")
    rng = np.random.default_rng(3)
    X, y, start = rng.random((9, 3072)), rng.integers(0, 10, 9), model.initial(rng)
    task = Task(X, y, start, [(0.1, start + 1)], 2, 0.001, lambda epoch: stream(1, "batch", epoch))
    (ours,) = model.train([task], Optimizer(optimizer, 0.001, 4))
    assert len(calls) == 6 * 2 * 2  # layers, batches of more than one row, epochs
    monkeypatch.setattr(visit, "by_numpy", lambda module, wanted: by_numpy(module, False))
    (torchs,) = model.train([task], Optimizer(optimizer, 0.001, 4))
    assert len(calls) == 24
    np.testing.assert_allclose(ours, torchs, rtol=0, atol=1e-6 if optimizer == "adam" else 1e-9)


def test_memory_begins_with_a_line_of_the_cache() -> None:
    for dtype in (np.float32, np.float64):
        for shape in ((1,), (3, 5)):
            array = compiled.memory(shape, dtype)
            assert (array.shape, array.dtype) == (shape, dtype)
            assert array.ctypes.data % 64 == 0
            assert not array.any()


def test_loops_are_compiled_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:

    def refusing(cache: bool = False, **options: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return numba.njit(**options)

    monkeypatch.setattr(compiled, "njit", refusing)
    assert compiled.compiled(lambda a, b: a * b)(3.0, 4.0) == 12.0


def test_as_many_tiles_are_computed_at_once_as_there_are_places_or_maps() -> None:
    each = [Steps(8, 8, 16, maps, False, np.dtype(np.float32))._images for maps in (1, 65)]
    assert each == [convolution.PLACES // 4, 17]
