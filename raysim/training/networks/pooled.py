"""A convolution of 3 x 3, max pooling of 2 x 2 and ReLU, as products of matrices with derivatives written out.

Arrays of images are ``[rows, maps, columns, b]``. The batch comes last, so that what is copied or compared at once is
contiguous, and rows that follow each other are the rows of one matrix. A pooled column sees four columns of the images:
these are copied, and give both columns that are pooled in one product, where a quarter of the factors are zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from raysim.training.networks.written import Array


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

    def __init__(self, images: Array, maps: int, border: int, padded: bool) -> None:
        (high, channels, wide, b), dtype = images.shape, images.dtype
        rows, columns = (high - 2) // 2, (wide - 2) // 2
        each = columns * b
        self.following, self.outputs = bordered((rows, maps, columns, b), border if padded else 0, dtype)
        # The four columns that each pooled one sees, and a row of ones, which the biases multiply.
        patches = np.ones((2 * rows + 2, 4 * channels + 1, each), dtype)
        self._patches = patches[:, :-1].reshape(2 * rows + 2, 4, channels, columns, b)
        of_row, of_map, of_column, of_one = images.strides
        self._columns = as_strided(images, self._patches.shape, (of_row, of_column, of_map, 2 * of_column, of_one))
        self._seen = _threes(patches)
        self._factors = np.zeros((2, maps, 3, 4 * channels + 1), dtype)
        # Two rows of zeros before and after, for those of the gradient's rows that lie outside.
        z = np.zeros((2 * rows + 4, 2 * maps, each), dtype)
        self._z, self._near = z[2:-2], _threes(z)
        window = self._z.reshape(rows, 2, 2, maps, each)
        self._left, self._right = window[:, :, 0], window[:, :, 1]
        self._pairs = np.empty((rows, 2, maps, each), dtype)
        self._best = np.empty((rows, maps, each), dtype)
        self._reached = slice(border, high - border)  # the patches' rows that do not lie in the border
        self._by_patches = patches[self._reached, :-1]
        by_images = np.zeros((high - 2 * border, channels, wide, b), dtype)
        self._by_images = by_images[:, :, border : wide - border]
        self._by_columns = by_images[: len(self._by_patches), :, : 2 * columns + 2]

    def forward(self, weight: Array, bias: Array) -> None:
        """Compute the outputs of what ``images`` hold with ``weight [maps, C, 3, 3]`` and ``bias [maps]``."""
        np.copyto(self._patches, self._columns)
        _, maps, _, height = self._factors.shape
        by_column = self._factors[..., :-1].reshape(2, maps, 3, 4, -1)
        # The right one of two neighbours sees what lies a column further.
        by_column[0, :, :, :3] = by_column[1, :, :, 1:] = weight.transpose(0, 2, 3, 1)
        self._factors[:, :, 0, -1] = bias
        np.matmul(self._factors.reshape(2 * maps, 3 * height), self._seen, out=self._z)
        np.maximum(self._left, self._right, out=self._pairs)
        np.maximum(self._pairs[:, 0], self._pairs[:, 1], out=self._best)
        np.maximum(self._best.reshape(self.outputs.shape), 0, out=self.outputs)

    def backward(self, by_outputs: Array, by_weight: Array, by_bias: Array) -> None:
        """Store the gradients in ``by_weight`` and ``by_bias``, once after each :meth:`forward`.

        ``by_outputs``: the gradient by the outputs, of their shape.
        """
        # What has been compared is not needed any more, so that its gradient takes its place.
        np.multiply(by_outputs, self.outputs > 0, out=self._best.reshape(self.outputs.shape))
        # Of equals the first takes all, as in torch: that of the upper row, and then the left one.
        upper, lower = self._pairs[:, 0], self._pairs[:, 1]
        np.multiply(self._best, lower > upper, out=lower)
        np.subtract(self._best, lower, out=upper)
        np.multiply(self._pairs, self._right > self._left, out=self._right)
        np.subtract(self._pairs, self._right, out=self._left)
        _, maps, _, height = self._factors.shape
        channels = height // 4
        turned = self._z.transpose(0, 2, 1)
        if channels > 1:  # with one the copy takes longer than it saves
            turned = np.ascontiguousarray(turned)
        by_factors = np.matmul(self._seen, turned).sum(0).reshape(3, height, 2, maps)
        by_column = by_factors[:, :-1].reshape(3, 4, channels, 2, maps)
        np.add(by_column[:, :3, :, 0], by_column[:, 1:, :, 1], out=by_weight.transpose(2, 3, 1, 0))
        np.add(by_factors[0, -1, 0], by_factors[0, -1, 1], out=by_bias)

    def by_images(self) -> Array:
        """The gradient by the images without their border, once after :meth:`backward`."""
        _, maps, _, height = self._factors.shape
        factors = self._factors[:, :, ::-1, :-1].transpose(3, 2, 0, 1).reshape(height - 1, 6 * maps)
        np.matmul(factors, self._near[self._reached], out=self._by_patches)
        by_patches = self._patches[self._reached]
        for k in (0, 1):
            near, far, total = by_patches[:, k], by_patches[:, k + 2], self._by_columns[:, :, k::2]
            total[:, :, 0], total[:, :, -1] = near[:, :, 0], far[:, :, -1]
            np.add(near[:, :, 1:], far[:, :, :-1], out=total[:, :, 1:-1])
        return self._by_images


def _threes(x: Array) -> Array:
    """Each three matrices of ``x [n, k, each]`` that follow each other as one: a view ``[n - 2, 3 k, each]``."""
    n, k, each = x.shape
    return as_strided(x, (n - 2, 3 * k, each), x.strides)
