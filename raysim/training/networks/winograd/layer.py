"""The arithmetic of a convolution with ReLU and batch norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from raysim.training.loops.winograd.points import LINES, POINTS, TILE, plane
from raysim.training.loops.winograd.table import Table
from raysim.training.machine_code import address, blas, function
from raysim.training.networks.winograd.memory import MEMORY
from raysim.training.networks.written import Array

LEAST_CHANNELS = 16
"""Tiles of fewer channels get zeros for the others: the innermost loops are over channels."""
_MEMORY = "room", "room_by", "room_y", "strip", "tiles", "tiles_y", "weights", "turned"
"""What of a table is memory."""
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
        self._wide, self._rows = wide, high // TILE
        self._factors = np.array([1, 0], dtype)
        name = np.dtype(dtype).name

        def loop(of: str, given: str, *sizes: Any) -> Callable[..., None]:
            return function(*_names(of), given, name, *sizes)

        def at(of: str, given: str, *sizes: Any) -> int:
            return address(*_names(of), given, name, *sizes)

        images, outputs = (high, wide, channels), (wide, maps, places, name)
        by_outputs = "by_pooled" if pooled else "by_outputs"
        self._table = Table(
            product=blas("gemm", dtype),
            inputs=at("inputs.inputs", "aannaaa", *images, width, places, normed, name),
            outputs=at("outputs.outputs", "aannaaar", *outputs),
            by_inputs=at("inputs.by_inputs", "aannaaar", *images, places, normed, name),
            by_outputs=at(f"outputs.{by_outputs}", "aaannaaar", *outputs),
            at_once=at_once,
            columns=columns,
            channels=channels,
            width=width,
            maps=maps,
            of_tiles=plane(places, width),
            of_tiles_y=plane(places, maps),
            of_weights=plane(width, maps),
            of_turned=plane(maps, channels),
            of_by_tiles=plane(places, channels),
            size=np.dtype(dtype).itemsize,
            factors=self._factors.ctypes.data,
            **dict.fromkeys(_MEMORY, 0),
        )
        self._forward = loop("passes.forward", "innnnnn")
        self._backward = loop("passes.backward", "innnnnnnnnn")
        self._pool = loop("pooling.pool", "aaan", wide, maps)
        self._by_pool = loop("pooling.by_pool", "aaarn", wide, maps)
        self._of_weights, self._turned = (
            loop("weights.of_weights", "aaa", channels, maps, width, turned, name) for turned in (False, True)
        )
        self._by_weights = loop("weights.by_weights", "aaa", channels, maps, width, name)
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
        (table, numbers), of_lines = self._in_memory(x.dtype), self._of_lines(of_x)
        self._of_weights(_at(weight), table.strip, table.weights)
        self._forward(_at(numbers), len(x) * self._rows, _at(x), _at(of_lines), _at(bias), _at(y), _at(sums))
        mean, square = sums.reshape(2, -1) / (y.size // len(bias))
        return y, mean, np.maximum(square - mean * mean, 0)

    def pool(self, y: Array, of_y: Array) -> Array:
        """The largest of each 2 x 2 of the norms of ``y [n, H, W, maps]``."""
        n, high, wide, maps = y.shape
        pooled = np.empty((n, high // 2, wide // 2, maps), y.dtype)
        self._pool(_at(y), _at(of_y), _at(pooled), n * high // 2)
        return pooled

    def by_pool(self, by_pooled: Array, y: Array, of_y: Array) -> Array:
        """Each map's sum of the gradient by the norm, and of that times ``y``, ``[2, maps]`` in float64."""
        sums = np.zeros(2 * y.shape[3])
        self._by_pool(_at(by_pooled), _at(y), _at(of_y), _at(sums), by_pooled.shape[0] * by_pooled.shape[1])
        return sums.reshape(2, -1)

    def backward(
        self, by_result: Array, of_norm: Array, x: Array, of_x: Array, y: Array, weight: Array, by_images: bool
    ) -> tuple[Array, Array, Array, Array]:
        """The gradient by the images' norm, or nothing if not ``by_images``; and by the weights and the bias.

        Between these, what :meth:`by_pool` gives, for the layer before. ``by_result``: the gradient by the
        norm, or by the pooled one; ``of_norm``: see :func:`raysim.training.loops.winograd.outputs.by_pooled`.
        """
        (table, numbers), of_lines = self._in_memory(x.dtype), self._of_lines(of_x)
        by_x = np.empty_like(x if by_images else x[:0])
        sums, by_bias, by_weight = np.zeros(2 * x.shape[3]), np.zeros(y.shape[3]), np.empty_like(weight)
        if by_images:
            self._turned(_at(weight), table.strip, table.turned)
        given = _at(by_result), _at(of_norm), _at(x), _at(of_lines), _at(y)
        results = by_images, _at(by_x), _at(sums), _at(by_bias)
        self._backward(_at(numbers), len(x) * self._rows, *given, *results)
        self._by_weights(table.weights, table.strip, _at(by_weight))
        return by_x, sums.reshape(2, -1), by_weight, by_bias

    def _in_memory(self, dtype: Any) -> tuple[Table, Array]:
        """The table with the memory of this thread; as an array, with room behind it for what BLAS is given."""
        arrays = MEMORY.take(dtype, *self._lengths)
        table = self._table._replace(**dict(zip(_MEMORY, map(_at, arrays), strict=True)))
        return table, np.array([*table, *[0] * 8], np.uint64)

    def _of_lines(self, of_norm: Array) -> Array:
        """The factor of each number of a line, then its shift."""
        return np.tile(of_norm.reshape(2, -1), self._wide).ravel()


def _at(array: Array) -> int:
    """The address of an array that is contiguous."""
    at: int = array.ctypes.data
    return at


def _names(loop: str) -> tuple[str, str]:
    """The module and the name of a loop of :mod:`raysim.training.loops.winograd`."""
    module, name = loop.split(".")
    return f"winograd.{module}", name
