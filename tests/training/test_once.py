"""Functions whose derivatives are written by hand, within torch's autograd."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from raysim.training.networks.convolution import PooledConvolutions
from raysim.training.networks.dense import Dense
from raysim.training.networks.numpy_layers import NumpyLayer, by_numpy
from raysim.training.networks.recurrent import Gates, recurrences

Called = Callable[[Tensor], Tensor]


def layer(made: NumpyLayer) -> Called:
    def call(x: Tensor) -> Tensor:
        with by_numpy(made, True):
            return made(x)

    return call


def convolution() -> tuple[Called, Tensor]:
    return layer(PooledConvolutions(16, 4, 3)), torch.randn(160, 16, 4, 4).to(memory_format=torch.channels_last)


def dense() -> tuple[Called, Tensor]:
    return layer(Dense(5, 3)), torch.randn(4, 5)


def recurrence() -> tuple[Called, Tensor]:
    inputs, mask, begun = torch.randn(9, 40, 8), torch.ones(40, 2), torch.ones(0, 40, 1)
    return lambda matrix: recurrences([Gates(inputs, matrix, mask, begun)])[0], torch.randn(8, 2)


each = pytest.mark.parametrize("make", [convolution, dense, recurrence])
Make = Callable[[], tuple[Called, Tensor]]


def given(make: Make) -> tuple[Called, Tensor]:
    torch.manual_seed(0)
    call, x = make()
    return call, x.requires_grad_()


def derivative(y: Tensor, x: Tensor, **options: Any) -> Tensor:
    (by_x,) = torch.autograd.grad(y, x, **options)
    return by_x


@each
@pytest.mark.parametrize("end", [torch.sum, lambda y: y.square().sum()])
def test_a_second_derivative_is_refused(make: Make, end: Called) -> None:
    call, x = given(make)
    y = end(call(x))
    with pytest.raises(RuntimeError, match="create_graph: "):
        derivative(y, x, create_graph=True)
    with pytest.raises(RuntimeError, match="create_graph: "):
        torch.autograd.backward(y, create_graph=True)
    assert derivative(y, x).any()


@each
def test_a_graph_may_be_kept(make: Make) -> None:
    call, x = given(make)
    y = call(x).square().sum()
    first = derivative(y, x, retain_graph=True)
    assert torch.equal(first, derivative(y, x))
    with pytest.raises(RuntimeError, match="a second time"):
        derivative(y, x)


@each
def test_what_has_changed_before_its_derivative_is_noticed(make: Make) -> None:
    call, x = given(make)
    y = call(x).sum()
    with torch.no_grad():
        x += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        derivative(y, x)


def test_images_are_given_back_with_the_derivatives() -> None:
    call, x = given(convolution)
    derivative(call(x).sum(), x)  # what is compiled or kept for later calls
    tracemalloc.start()
    try:
        y = call(x).sum()
        held, _ = tracemalloc.get_traced_memory()
        derivative(y, x)
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    images = 4 * 160 * (4 + 3) * 4 * 4  # of float32, 160 of 4 and then 3 maps of 4 x 4
    assert held > images
    assert left < held - 0.9 * images
