"""A convolution of 3 x 3, max pooling of 2 x 2 and ReLU with derivatives written out, as machine code.

Arrays of images are ``[rows, maps, columns, b]``, with the batch last; see :mod:`raysim.training.loops.pooled`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from raysim.training.machine_code import blas, function, location
from raysim.training.networks.written import Array


class _Loops(NamedTuple):
    """Of :mod:`raysim.training.loops.pooled`."""

    forward: Callable[..., None]
    backward: Callable[..., None]
    by_parameters: Callable[..., None]


@cache
def _loops(dtype: str) -> _Loops:
    given = {"forward": "iaaaaaaaba", "backward": "iaannnbaaaaaaa", "by_parameters": "iaaa"}
    return _Loops(*(function("pooled", name, letters, dtype) for name, letters in given.items()))


class _Memory(NamedTuple):
    """What the loops read and write, as arrays or as their addresses; see :mod:`raysim.training.loops.pooled`."""

    table: Any
    scale: Any
    images: Any
    factors: Any
    patches: Any
    z: Any
    best: Any
    following: Any
    by_z: Any
    by_factors: Any
    turned: Any
    by_patches: Any
    by_images: Any


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
        table = [dtype.itemsize, blas("gemm", dtype), high, channels, wide, b, border, rows, columns, maps, behind]
        self._shapes, self._loops = ((maps, channels, 3, 3), (maps,)), _loops(dtype.name)
        self._memory = _Memory(
            table=np.array([*table, *[0] * 8], np.uint64),
            scale=np.array([1, 0], dtype),
            images=images,
            factors=np.zeros((2, maps, 3, height), dtype),
            patches=np.ones((2 * rows + 2, height, each), dtype),
            z=np.empty((2, 2 * maps, each), dtype),
            best=np.empty((rows, maps, each), np.uint8),
            following=self.following,
            by_z=np.zeros((2 * rows + 4, 2 * maps, each), dtype),
            by_factors=np.zeros((3, height, 2, maps), dtype),
            turned=np.empty((4 * channels, 6 * maps), dtype),
            by_patches=np.empty((4 * channels, each), dtype),
            by_images=np.zeros_like(images),
        )
        self._at = _Memory(*(array.ctypes.data for array in self._memory))
        self.by_images = self._memory.by_images[border : high - border, :, border : wide - border]

    def forward(self, weight: Array, bias: Array) -> None:
        """Compute the outputs of what ``images`` hold with ``weight [maps, C, 3, 3]`` and ``bias [maps]``.

        Raises ``ValueError`` for other shapes.
        """
        parameters = [np.ascontiguousarray(array, self.outputs.dtype) for array in (weight, bias)]
        at, given = self._at, self._located(*parameters)
        self._loops.forward(at.table, at.scale, at.images, *given, at.factors, at.patches, at.z, at.best, at.following)

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
        at, into = self._at, self._located(by_weight, by_bias)
        if not (by_weight.flags.writeable and by_bias.flags.writeable):
            raise ValueError("gradients are stored in arrays that must not be read-only")
        apart = (stride // dtype.itemsize for stride in by_outputs.strides[:2])
        given = by_outputs.ctypes.data, *apart, needed, at.best, at.patches
        made = at.by_z, at.by_factors, at.factors, at.turned, at.by_patches, at.by_images
        self._loops.backward(at.table, at.scale, *given, *made)
        self._loops.by_parameters(at.table, at.by_factors, *into)

    def _located(self, weight: Array, bias: Array) -> list[int]:
        """Where they are. Raises ``ValueError`` unless their memory is that of a weight and a bias."""
        pairs = zip((weight, bias), self._shapes, strict=True)
        return [location(array, shape, self.outputs.dtype) for array, shape in pairs]
