"""Convolutions one after the other, each with ReLU and batch norm, and max pooling of 2 x 2 at the end.

The norm of a layer is taken where the next one reads its images, and is not stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from raysim.training.networks.winograd.layer import Layer
from raysim.training.networks.written import Array


class Parameters(NamedTuple):
    """Those of a layer, or the gradients by them."""

    weight: Array
    """``[maps, channels, 3, 3]``."""
    bias: Array
    """``[maps]``."""
    scale: Array
    """Batch norm's, ``[maps]``."""
    shift: Array
    """Likewise."""


class Norms(NamedTuple):
    """The batch norms of the images that a layer is given, and of those that it gives."""

    of_x: Array
    """Each channel's factor of the former, then each one's shift; empty if they have none."""
    of_y: Array
    """Factors and shifts of the latter."""
    mean: Array
    """Of each map that it gives, in float64."""
    variance: Array
    """Likewise."""
    deviation: Array
    """The root of the variance and of what batch norm adds to it."""
    rows: int
    """How many numbers of a map are normed together."""


class Chain:
    """The arithmetic of layers from each of ``channels`` to the next, for images of one size."""

    def __init__(self, high: int, wide: int, channels: tuple[int, ...], dtype: Any) -> None:
        last = len(channels) - 2
        self._layers = [Layer(high, wide, a, b, k > 0, k == last, dtype) for k, (a, b) in enumerate(pairwise(channels))]

    def forward(
        self, x: Array, parameters: Sequence[Parameters], eps: Sequence[float]
    ) -> tuple[Array, list[Array], list[Norms]]:
        """Images ``x [n, H, W, channels]`` to pooled norms ``[n, H / 2, W / 2, maps]``.

        Then ``x``, and of each layer ``max(convolution, 0)``, ``[n, H, W, maps]``; and its norms. ``eps`` is added to
        the variances of each.
        """
        of_x, images, norms = np.empty(0, x.dtype), [x], []
        for layer, own, added in zip(self._layers, parameters, eps, strict=True):
            y, mean, variance = layer.forward(images[-1], of_x, own.weight, own.bias)
            deviation = np.sqrt(variance + added)
            factor = own.scale / deviation
            of_y = np.concatenate([factor, own.shift - factor * mean]).astype(y.dtype)
            images.append(y)
            norms.append(Norms(of_x, of_y, mean, variance, deviation, y.size // len(mean)))
            of_x = of_y
        return self._layers[-1].pool(images[-1], of_x), images, norms

    def backward(
        self,
        by_pooled: Array,
        images: Sequence[Array],
        norms: Sequence[Norms],
        parameters: Sequence[Parameters],
        by_images: bool,
    ) -> tuple[Array | None, list[Parameters]]:
        """The gradients by ``x``, if ``by_images``, and by each layer's parameters."""
        by_norm, sums = by_pooled, self._layers[-1].by_pool(by_pooled, images[-1], norms[-1].of_y)
        results = []
        for k, layer in reversed(list(enumerate(self._layers))):
            own, given, x, y = parameters[k], norms[k], images[k], images[k + 1]
            by_shift, products = sums
            by_scale = (products - given.mean * by_shift) / given.deviation
            # The derivative by y is linear in that by its norm and in y.
            slope = own.scale / given.deviation
            bend = -slope * by_scale / (given.rows * given.deviation)
            line = slope, bend, -slope * by_shift / given.rows - bend * given.mean
            of_norm = np.concatenate([*line, given.of_y]).astype(y.dtype)
            by_norm, sums, by_weight, by_bias = layer.backward(
                by_norm, of_norm, x, given.of_x, y, own.weight, by_images or k > 0
            )
            results.append(Parameters(by_weight, by_bias, by_scale, by_shift))
        return by_norm if by_images else None, results[::-1]


@lru_cache
def chain(high: int, wide: int, channels: tuple[int, ...], dtype: Any) -> Chain:
    """The chain for such images; it has no memory of its own."""
    return Chain(high, wide, channels, dtype)
