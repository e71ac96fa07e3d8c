"""A convolution of 3 x 3, max pooling of 2 x 2 and ReLU with derivatives written out, as machine code.

Arrays of images are ``[rows, maps, columns, b]``, with the batch last; see :mod:`raysim.training.loops.pooled`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from raysim.training.machine_code import blas, function
from raysim.training.networks.written import Array


class _Loops(NamedTuple):
    """Of :mod:`raysim.training.loops.pooled`."""

    forward: Callable[..., None]
    backward: Callable[..., None]
    by_parameters: Callable[..., None]


@cache
def _loops(dtype: str) -> _Loops:
    given = {"forward": "iaaaaaaaba", "backward": "iaaibaaaaaaa", "by_parameters": "iaaa"}
    return _Loops(*(function("pooled", name, letters, dtype) for name, letters in given.items()))


def bordered(shape: tuple[int, ...], border: int, dtype: Any) -> tuple[Array, Array]:
    """Memory for images of ``shape`` in a border of zeros, and the view of it that they are to fill."""
    rows, maps, columns, b = shape
    whole = np.zeros((rows + 2 * border, maps, columns + 2 * border, b), dtype)
    return whole, whole[border : border + rows, :, border : border + columns]


class Stage:
    """The layers on ``images [H, C, W, b]``, memory that has a ``border`` of zeros, and gives ``maps`` maps.

    The memory is used by every call. A last row or column that has none to be pooled with is dropped.
    """

    following: Array
    """The outputs, in a border as wide as ``images`` if they are ``padded``: the images of the next stage."""
    outputs: Array
    """The outputs alone, ``[(H - 2) // 2, maps, (W - 2) // 2, b]``."""
    by_images: Array
    """The gradient by the images without their border, once :meth:`backward` was asked for it."""

    def __init__(self, images: Array, maps: int, border: int, padded: bool) -> None:
        (high, channels, wide, b), dtype = images.shape, images.dtype
        rows, columns, height = (high - 2) // 2, (wide - 2) // 2, 4 * channels + 1
        each, behind = columns * b, border if padded else 0
        self.following, self.outputs = bordered((rows, maps, columns, b), behind, dtype)
        by_images = np.zeros_like(images)
        self.by_images = by_images[border : high - border, :, border : wide - border]
        table = [dtype.itemsize, blas("gemm", dtype), high, channels, wide, b, border, rows, columns, maps, behind]
        self._shapes = (maps, channels, 3, 3), (maps,)
        self._loops, self._scale = _loops(dtype.name), np.array([1, 0], dtype)
        self._table, self._places = np.array([*table, *[0] * 8], np.uint64), np.zeros(3, np.uint64)
        best, patches = np.empty((rows, maps, each), np.uint8), np.ones((2 * rows + 2, height, each), dtype)
        z, by_z = np.empty((2, 2 * maps, each), dtype), np.zeros((2 * rows + 4, 2 * maps, each), dtype)
        factors, by_factors = (np.zeros((2, maps, 3, height), dtype) for _ in range(2))
        turned, by_patches = np.empty((4 * channels, 6 * maps), dtype), np.empty((4 * channels, each), dtype)
        self._memory = images, best, patches, z, by_z, factors, by_factors, turned, by_patches, by_images
        self._at_table, self._at_scale, self._at_places, self._at_following = _addresses(
            self._table, self._scale, self._places, self.following
        )
        self._at = _addresses(*self._memory)

    def forward(self, weight: Array, bias: Array) -> None:
        """Compute the outputs of what ``images`` hold with ``weight [maps, C, 3, 3]`` and ``bias [maps]``.

        Raises ``ValueError`` for other shapes.
        """
        images, best, patches, z, _, factors, *_ = self._at
        parameters = [np.ascontiguousarray(array, self.outputs.dtype) for array in (weight, bias)]
        self._check(parameters)
        given = images, *_addresses(*parameters), factors, patches, z, best, self._at_following
        self._loops.forward(self._at_table, self._at_scale, *given)

    def backward(self, by_outputs: Array, by_weight: Array, by_bias: Array, *, needed: bool) -> None:
        """Store the gradients in ``by_weight`` and ``by_bias``, once after each :meth:`forward`.

        ``by_outputs``: the gradient by the outputs, of their shape; numbers of one row and map lie side by side.
        ``needed``: whether to fill :attr:`by_images`. Raises ``ValueError`` for arrays of other shapes or types, or
        that lie otherwise in memory.
        """
        shape, dtype = self.outputs.shape, self.outputs.dtype
        whole = by_outputs.shape == shape and by_outputs.dtype == dtype and by_outputs[:1, :1].flags.c_contiguous
        if not whole or min(by_outputs.strides) < 0:
            raise ValueError(f"a gradient {shape} of {dtype.name} is needed, side by side in memory")
        self._check((by_weight, by_bias))
        if not (by_weight.flags.writeable and by_bias.flags.writeable):
            raise ValueError("gradients are stored in arrays that must not be read-only")
        self._places[:] = *(stride // dtype.itemsize for stride in by_outputs.strides[:2]), needed
        _, best, patches, _, by_z, factors, by_factors, turned, by_patches, by_images = self._at
        slope, *into = _addresses(by_outputs, by_weight, by_bias)
        made = by_z, by_factors, factors, turned, by_patches, by_images
        self._loops.backward(self._at_table, self._at_scale, slope, self._at_places, best, patches, *made)
        self._loops.by_parameters(self._at_table, by_factors, *into)

    def _check(self, arrays: Sequence[Array]) -> None:
        """Raise ``ValueError`` unless memory of ``arrays`` is that of a weight and a bias."""
        for array, shape in zip(arrays, self._shapes, strict=True):
            if array.shape != shape or array.dtype != self.outputs.dtype or not array.flags.c_contiguous:
                dtype = self.outputs.dtype.name
                raise ValueError(f"{shape} numbers of {dtype} side by side are needed, not {array.shape}")


def _addresses(*arrays: Array) -> list[int]:
    return [array.ctypes.data for array in arrays]
