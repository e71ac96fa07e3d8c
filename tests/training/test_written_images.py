"""The written derivatives of ``fashion_cnn``, against those of autograd."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from raysim.core.streams import stream
from raysim.training.base import Moments, Optimizer, Task
from raysim.training.kernels.modules import visit
from raysim.training.kernels.modules.generic import ModuleModel
from raysim.training.models import build_model
from raysim.training.networks import images
from raysim.training.networks.images import SIZES, CifarCnn, FashionCnn
from raysim.training.networks.pooled import Stage, bordered


def cnn(precision: str = "float64", **options: Any) -> ModuleModel:
    model = build_model("fashion_cnn", 784, 10, options={"dense": 6} | options, precision=precision)
    assert isinstance(model, ModuleModel)
    return model


def task(model: ModuleModel, n: int, hospital: int = 0) -> Task:
    rng = np.random.default_rng(hospital)
    X, y = rng.random((n, 784)), rng.integers(0, 10, n)
    return Task(X, y, model.initial(rng), [], 2, 0.01, lambda epoch: stream(1, "batch", hospital, epoch))


@pytest.mark.parametrize("drawn", ["normal", "whole numbers", "equal"])
@pytest.mark.parametrize(("high", "wide", "border"), [(4, 4, 0), (5, 7, 0), (4, 4, 1), (5, 3, 1), (2, 8, 1)])
@pytest.mark.parametrize(("channels", "maps", "b"), [(1, 2, 3), (3, 2, 1), (2, 5, 4)])
def test_a_stage_is_its_layers(high: int, wide: int, border: int, channels: int, maps: int, b: int, drawn: str) -> None:
    rng = np.random.default_rng(5)
    whole, given = bordered((high, channels, wide, b), border, np.float64)
    stage = Stage(whole, maps, border, padded=border > 0)
    layers = nn.Sequential(nn.Conv2d(channels, maps, 3, padding=border), nn.MaxPool2d(2), nn.ReLU()).double()
    weight, bias = layers[0].weight, layers[0].bias
    assert isinstance(weight, nn.Parameter)
    assert isinstance(bias, nn.Parameter)
    for _ in range(2):  # the second has the memory of the first
        for parameter in (weight, bias):
            values = rng.normal(size=parameter.shape) if drawn == "normal" else rng.integers(-1, 3, parameter.shape)
            parameter.data = torch.from_numpy(np.asarray(values, np.float64))
            parameter.grad = None
        # Whole numbers and equal ones have many neighbours that are pooled and of which none is larger.
        given[:] = {"normal": rng.normal(size=given.shape), "equal": 1.0}.get(drawn, rng.integers(-1, 2, given.shape))
        x = torch.tensor(given.transpose(3, 1, 0, 2), requires_grad=True)
        expected = layers(x)
        slope = rng.normal(size=expected.shape)
        torch.autograd.backward(expected, torch.from_numpy(slope))
        stage.forward(weight.detach().numpy(), bias.detach().numpy())
        by_weight, by_bias = np.empty(weight.shape), np.empty(bias.shape)
        stage.backward(np.ascontiguousarray(slope.transpose(2, 1, 3, 0)), by_weight, by_bias, needed=True)
        close(stage.outputs, expected.detach().permute(2, 1, 3, 0))
        close(by_weight, weight.grad)
        close(by_bias, bias.grad)
        assert x.grad is not None
        close(stage.by_images, x.grad.permute(2, 1, 3, 0))
    assert stage.following.shape[0] == len(stage.outputs) + 2 * border


def test_a_stage_takes_arrays_that_lie_side_by_side_and_are_of_its_type() -> None:
    whole, given = bordered((4, 2, 6, 3), 1, np.float64)
    stage = Stage(whole, 3, 1, padded=True)
    given[:] = np.random.default_rng(0).normal(size=given.shape)
    weight, bias = np.random.default_rng(1).normal(size=(3, 3, 3, 2)).transpose(0, 3, 1, 2), np.ones(6)[::2]
    stage.forward(weight, bias)
    outputs = stage.outputs.copy()
    stage.forward(np.ascontiguousarray(weight), np.ones(3))
    np.testing.assert_array_equal(stage.outputs, outputs)
    for wrong in ((weight[:, :1], bias), (weight, np.ones(2)), (weight[:2], bias[:2])):
        with pytest.raises(ValueError, match="of float64 one after the other are needed"):
            stage.forward(*wrong)
    slope, by_weight, by_bias = np.ones(outputs.shape), np.empty((3, 2, 3, 3)), np.empty(3)
    fixed = np.empty(3)
    fixed.flags.writeable = False
    apart, parted = "side by side in memory", "of float64 one after the other are needed"
    for wrong_one, message in (
        ((slope[:, :, ::-1], by_weight, by_bias), apart),
        ((slope[::-1], by_weight, by_bias), apart),
        ((slope[:1], by_weight, by_bias), apart),
        ((slope[:0], by_weight, by_bias), apart),
        ((slope.astype(np.float32), by_weight, by_bias), apart),
        ((slope, by_weight.astype(np.float32), by_bias), parted),
        ((slope, by_weight.transpose(0, 1, 3, 2), by_bias), parted),
        ((slope, by_weight[:, :1].copy(), by_bias), parted),
        ((slope, by_weight, np.empty(6)[::2]), parted),
        ((slope, by_weight, fixed), "read-only"),
    ):
        with pytest.raises(ValueError, match=message):
            stage.backward(*wrong_one, needed=False)


def test_what_is_not_a_number_goes_on_as_in_torch() -> None:
    """Else a network that has diverged would look as if it had not."""
    layers = nn.Sequential(nn.Conv2d(1, 1, 3), nn.MaxPool2d(2), nn.ReLU()).double()
    convolution = layers[0]
    assert isinstance(convolution, nn.Conv2d)
    assert convolution.bias is not None
    with torch.no_grad():
        convolution.weight.zero_()
        convolution.weight[0, 0, 0, ::2] = torch.tensor([np.inf, -np.inf])
        convolution.bias.zero_()
    b = 3**4
    whole, given = bordered((4, 1, 4, b), 0, np.float64)
    stage = Stage(whole, 1, 0, padded=False)
    given[2:] = np.random.default_rng(0).normal(size=given[2:].shape)  # by which a place is known
    for place in range(4):  # all ways to have not a number, infinity or minus infinity at each of the four
        row, column, digit = place // 2, place % 2, np.arange(b) // 3**place % 3
        given[row, 0, column], given[row, 0, column + 2] = np.array([[1.0, 1.0, -1.0], [1.0, -1.0, 1.0]])[:, digit]
    slope = np.arange(1.0, b + 1)
    expected = layers(torch.from_numpy(given.transpose(3, 1, 0, 2)))
    assert 0 < expected.isnan().sum() < b
    torch.autograd.backward(expected, torch.from_numpy(slope).reshape(b, 1, 1, 1))
    stage.forward(convolution.weight.detach().numpy(), np.zeros(1))
    close(stage.outputs, expected.detach().permute(2, 1, 3, 0))
    by_weight, by_bias = np.empty((1, 1, 3, 3)), np.empty(1)
    stage.backward(slope.reshape(1, 1, 1, b), by_weight, by_bias, needed=False)
    close(by_weight, convolution.weight.grad)
    close(by_bias, convolution.bias.grad)


def close(ours: NDArray[Any], expected: torch.Tensor | None) -> None:
    assert expected is not None
    np.testing.assert_allclose(ours, expected.numpy(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("padding", [True, False])
def test_all_that_autograd_derives_is_written_out(padding: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "KEPT", 32)
    torch.manual_seed(3)
    net = FashionCnn(784, 7, dense=48, padding=padding).double()
    for rows in (3, 1, 33, 32, 3, 2):
        x, by_output = torch.randn(rows, 784).double(), torch.randn(rows, 7).double()
        net.zero_grad()
        expected = net(x)
        torch.autograd.backward(expected, by_output)
        outputs, backward = net.written(x)
        gradients = [np.empty(parameter.shape) for parameter in net.parameters()]
        backward(by_output.numpy(), gradients)
        close(outputs, expected.detach())
        for parameter, gradient in zip(net.parameters(), gradients, strict=True):
            close(gradient, parameter.grad)
        assert len(net._kept) <= SIZES
        assert all(kept <= 32 for kept, _ in net._kept)
    kept = list(net._kept.values())
    net.written(torch.randn(2, 784).double())
    assert list(net._kept.values()) == kept
    assert [rows for rows, _ in net._kept] == [3, 2]


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("padding", [True, False])
def test_a_visit_is_that_of_autograd(monkeypatch: pytest.MonkeyPatch, optimizer: str, padding: bool) -> None:
    model, terms = cnn(padding=padding), Optimizer(optimizer, 0.01, 4, 0.01)
    first = replace(task(model, 9), weights=np.random.default_rng(1).random(9))
    first = replace(first, pulls=[(0.1, first.start + 1)], frozen=np.arange(len(first.start)) % 3 == 0)

    def play() -> tuple[NDArray[Any], NDArray[Any] | None, int]:
        moments = Moments()
        (theta,) = model.train([replace(first, moments=moments)], terms)
        (theta,) = model.train([replace(first, start=theta, moments=moments)], terms)
        return theta, moments.second if optimizer == "adam" else moments.first, moments.steps

    theta, moments, steps = play()
    monkeypatch.setattr(visit, "WrittenModule", CifarCnn)  # which the network is not
    expected, others, as_many = play()
    np.testing.assert_allclose(theta, expected, rtol=0, atol=1e-11)
    assert (theta != first.start).any()
    assert steps == as_many == (12 if optimizer == "adam" else 0)
    if optimizer != "sgd":
        assert moments is not None
        assert others is not None
        np.testing.assert_allclose(moments, others, rtol=0, atol=1e-11)


def test_no_bit_depends_on_who_trains_before() -> None:
    model, terms = cnn("float32"), Optimizer("adam", 0.01, 4)
    tasks = [task(model, n, h) for h, n in enumerate((9, 1, 0, 6, 4, 11))]
    broken = replace(tasks[0], learning_rate=1e30)
    alone = [cnn("float32").train([each], terms)[0].tobytes() for each in tasks]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        together = model.train([broken, *tasks, broken], terms)
        backwards = model.train(tasks[::-1], terms)[::-1]
    assert not np.isfinite(together[0]).all()
    assert [theta.tobytes() for theta in together[1:-1]] == alone
    assert [theta.tobytes() for theta in backwards] == alone
