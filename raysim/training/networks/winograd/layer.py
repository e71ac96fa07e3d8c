"""The arithmetic of a convolution with ReLU and batch norm."""

from __future__ import annotations

from typing import Any

import numpy as np

from raysim.training.networks.compiled import MEMORY
from raysim.training.networks.winograd import passes
from raysim.training.networks.winograd.inputs import by_inputs, inputs
from raysim.training.networks.winograd.outputs import by_outputs, by_pooled, outputs
from raysim.training.networks.winograd.points import LINES, POINTS, TILE, plane
from raysim.training.networks.winograd.pooling import by_pool, pool
from raysim.training.networks.winograd.weights import by_weights, of_weights
from raysim.training.networks.written import Array

LEAST_CHANNELS = 16
"""Tiles of fewer channels get zeros for the others: the innermost loops are over channels."""
PLACES = 32
"""Tiles that are computed at once, at least: with their products they stay in a core's cache."""


class Layer:
    """The arithmetic for images of one size.

    ``normed``: whether its images have a norm, which is taken where they are read; ``pooled``: whether its own norms
    are pooled.
    """

    def __init__(self, high: int, wide: int, channels: int, maps: int, normed: bool, pooled: bool, dtype: Any) -> None:
        width, columns = max(channels, LEAST_CHANNELS), wide // TILE
        at_once = -(-PLACES // columns)
        places = at_once * columns
        self._sizes = passes.Sizes(at_once, columns, channels, width, maps)
        self._wide, self._rows = wide, high // TILE
        # An address keeps no code, and the caches of these drop what is old.
        self._called = (
            inputs(high, wide, channels, width, places, normed, dtype),
            outputs(wide, maps, places, dtype),
            by_inputs(high, wide, channels, places, normed, dtype),
            (by_pooled if pooled else by_outputs)(wide, maps, places, dtype),
        )
        self._loops = passes.Loops(passes.product(dtype), *(loop.address for loop in self._called))
        self._pool, self._by_pool = pool(wide, maps), by_pool(wide, maps)
        self._of_weights, self._turned = (of_weights(channels, maps, width, turned) for turned in (False, True))
        self._by_weights = by_weights(channels, maps, width)
        of_points = (places, width), (places, maps), (width, maps), (maps, channels)
        self._lengths = (
            LINES * (wide + 2) * width,
            LINES * (wide + 2) * channels,
            TILE * wide * maps,
            POINTS * max(width, maps),
            *(POINTS * plane(*shape) for shape in of_points),
        )

    def forward(self, x: Array, of_x: Array, weight: Array, bias: Array) -> tuple[Array, Array, Array]:
        """``max(convolution, 0)`` of images ``[n, H, W, channels]``; mean and variance ``[maps]`` of it, in float64."""
        y, sums = np.empty((*x.shape[:3], len(bias)), x.dtype), np.zeros(2 * len(bias))
        rooms = self._rooms(x.dtype)
        self._of_weights(weight.ravel(), rooms.strip, rooms.weights)
        arrays = x.ravel(), self._of_lines(of_x), bias, y.ravel(), sums
        passes.forward(self._loops, self._sizes, rooms, len(x) * self._rows, *arrays)
        mean, square = sums.reshape(2, -1) / (y.size // len(bias))
        return y, mean, np.maximum(square - mean * mean, 0)

    def pool(self, y: Array, of_y: Array) -> Array:
        """The largest of each 2 x 2 of the norms of ``y [n, H, W, maps]``."""
        n, high, wide, maps = y.shape
        pooled = np.empty((n, high // 2, wide // 2, maps), y.dtype)
        self._pool(y.ravel(), of_y, pooled.ravel())
        return pooled

    def by_pool(self, by_pooled: Array, y: Array, of_y: Array) -> Array:
        """Each map's sum of the gradient by the norm, and of that times ``y``, ``[2, maps]`` in float64."""
        sums = np.zeros(2 * y.shape[3])
        self._by_pool(by_pooled.ravel(), y.ravel(), of_y, sums)
        return sums.reshape(2, -1)

    def backward(
        self, by_result: Array, of_norm: Array, x: Array, of_x: Array, y: Array, weight: Array, by_images: bool
    ) -> tuple[Array, Array, Array, Array]:
        """The gradient by the images' norm, or nothing if not ``by_images``; and by the weights and the bias.

        Between these, what :meth:`by_pool` gives, for the layer before. ``by_result``: the gradient by the
        norm, or by the pooled one; ``of_norm``: see :func:`raysim.training.networks.winograd.outputs.by_pooled`.
        """
        rooms, by_x = self._rooms(x.dtype), np.empty_like(x if by_images else x[:0])
        sums, by_bias, by_weight = np.zeros(2 * x.shape[3]), np.zeros(y.shape[3]), np.empty_like(weight)
        if by_images:
            self._turned(weight.ravel(), rooms.strip, rooms.turned)
        given = by_result.ravel(), of_norm, x.ravel(), self._of_lines(of_x), y.ravel()
        results = by_images, by_x.ravel(), sums, by_bias
        passes.backward(self._loops, self._sizes, rooms, len(x) * self._rows, *given, *results)
        self._by_weights(rooms.weights, rooms.strip, by_weight.ravel())
        return by_x, sums.reshape(2, -1), by_weight, by_bias

    def _rooms(self, dtype: Any) -> passes.Rooms:
        arrays = MEMORY.take(dtype, *self._lengths)
        return passes.Rooms._make([*arrays, np.empty(8, np.int64), np.empty(2, dtype)])

    def _of_lines(self, of_norm: Array) -> Array:
        """The factor of each number of a line, then its shift."""
        return np.tile(of_norm.reshape(2, -1), self._wide).ravel()
