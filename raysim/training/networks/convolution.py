"""A convolution of 3 x 3 with ReLU, batch norm and max pooling, which trains on a CPU by Winograd's algorithm.

It takes half the time of torch's layers, whose convolutions multiply at the processor's limit, and whose other passes
each go through all images again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raysim.training.networks.numpy_layers import NumpyLayer
from raysim.training.networks.written import Array

LEAST_CHANNELS = 16
"""Images of fewer channels get zeros for the others: the innermost loops are over channels."""
PLACES = 64
"""Tiles that are computed at once, at least: with their products they stay in a core's cache."""


class NormedConvolution(NumpyLayer):
    """``batch norm(max(convolution, 0))``, with the largest of each 2 x 2 if ``pooled``.

    The convolution is padded by one; sides of images are multiples of 4. Where the layer trains in a visit's loop on a
    CPU (:func:`by_numpy`) it is a :class:`Winograd`.
    """

    def __init__(self, channels: int, maps: int, pooled: bool = False) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(channels, maps, 3, padding=1), nn.BatchNorm2d(maps)
        self.pooled = pooled
        self._steps: tuple[Any, Steps] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Images ``[b, channels, H, W]``, channels last in memory, to ``[b, maps, H, W]``, or half of each side."""
        if self.norm.training and torch.is_grad_enabled() and self.computes_by_numpy():
            parameters = self.convolution.weight, self.convolution.bias, self.norm.weight, self.norm.bias
            result: Tensor = Winograd.apply(x, *parameters, self)  # type: ignore[no-untyped-call]
            return result
        normed: Tensor = self.norm(self.convolution(x).relu_())
        return nn.functional.max_pool2d(normed, 2) if self.pooled else normed

    def steps(self, x: Array) -> Steps:
        """The arithmetic for images like ``x [b, H, W, channels]``."""
        key = x.shape[1:], x.dtype
        if self._steps is None or self._steps[0] != key:
            _, high, wide, channels = x.shape
            self._steps = key, Steps(high, wide, channels, self.convolution.out_channels, self.pooled, x.dtype)
        return self._steps[1]

    def follow(self, mean: Array, variance: Array, rows: int) -> None:
        """Move the running statistics towards those of a batch in which a channel has so many ``rows``."""
        norm, batch = self.norm, (mean, variance * (rows / (rows - 1)))
        assert norm.momentum is not None
        assert norm.num_batches_tracked is not None
        with torch.no_grad():
            for running, value in zip((norm.running_mean, norm.running_var), batch, strict=True):
                assert running is not None
                running.lerp_(torch.from_numpy(value).to(running.dtype), norm.momentum)
            norm.num_batches_tracked.add_(1)


class Winograd(torch.autograd.Function):
    """A :class:`NormedConvolution` on a CPU. Differentiable once; no transform of ``torch.func`` knows it."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, scale: Tensor, shift: Tensor, layer: NormedConvolution
    ) -> Tensor:
        """See the class."""
        images = _channels_last(x)
        steps = layer.steps(images)
        y, mean, variance = steps.convolve(images, weight.detach().numpy(), bias.detach().numpy())
        layer.follow(mean, variance, y.size // len(mean))
        deviation = np.sqrt(variance + layer.norm.eps)
        factor = scale.detach().numpy() / deviation
        of_norm = np.concatenate([factor, shift.detach().numpy() - factor * mean]).astype(y.dtype)
        ctx.steps, ctx.kept = steps, (images, y, of_norm, mean, deviation)
        ctx.save_for_backward(weight, scale)
        return torch.from_numpy(steps.norm(y, of_norm)).permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients by all that ``forward`` is given, but the layer."""
        weight, scale = (tensor.detach().numpy() for tensor in ctx.saved_tensors)
        images, y, of_norm, mean, deviation = ctx.kept
        by_result, n = _channels_last(gradients[0]), y.size // len(mean)
        by_shift, products = ctx.steps.by_norm(by_result, y, of_norm)
        by_scale = (products - mean * by_shift) / deviation
        # The derivative by y is linear in that by its norm and in y.
        slope = scale / deviation
        bend = -slope * by_scale / (n * deviation)
        line = np.concatenate([slope, bend, -slope * by_shift / n - bend * mean]).astype(y.dtype)
        by_x, by_weight, by_bias = ctx.steps.by_convolution(
            by_result, images, weight, y, np.concatenate([line, of_norm]), by_images=ctx.needs_input_grad[0]
        )
        by_parameters = (torch.from_numpy(a.astype(y.dtype)) for a in (by_weight, by_bias, by_scale, by_shift))
        return None if by_x is None else torch.from_numpy(by_x).permute(0, 3, 1, 2), *by_parameters, None


class Steps:
    """The arithmetic of :class:`Winograd` for images of one size, a few at a time, in memory that all calls use."""

    def __init__(self, high: int, wide: int, channels: int, maps: int, pooled: bool, dtype: Any) -> None:
        # numba's import takes a third of a second
        from raysim.training.networks import compiled, norms, winograd, winograd_gradients

        self._of_weights, self._by_weights = winograd.of_weights, winograd.by_weights
        self._channels, self._width, self._maps, self._pooled = channels, max(channels, LEAST_CHANNELS), maps, pooled
        self._each = high * wide // winograd.TILE**2
        self._images = -(-max(PLACES, maps) // self._each)
        places = self._images * self._each
        self._of_x = winograd.transforms(high, wide, self._width, places, channels)
        self._by_inputs = winograd.transforms(high, wide, channels, places).by_inputs
        self._of_y = winograd.transforms(high, wide, maps, places)
        gradients = winograd_gradients.gradients(high, wide, maps, places)
        self._by_outputs = gradients.by_pooled if pooled else gradients.by_outputs
        self._norms = norms.norms(wide, maps)
        self._room = compiled.memory(((high + 2) * (wide + 2) * self._width,), dtype)
        self._strip = compiled.memory((winograd.POINTS * max(self._width, maps),), dtype)
        self._flat_x, self._x = winograd.tiles(places, self._width, dtype)
        self._flat_y, self._y = winograd.tiles(places, maps, dtype)
        self._flat_by_x, self._by_x = winograd.tiles(places, channels, dtype)
        self._room_by_x = compiled.memory(((high + 2) * (wide + 2) * channels,), dtype)
        self._factors = compiled.memory((winograd.POINTS, self._width, maps), dtype)
        self._turned = compiled.memory((winograd.POINTS, maps, channels), dtype)
        self._by_factors, self._part = (compiled.memory((winograd.POINTS, self._width, maps), dtype) for _ in range(2))

    def convolve(self, x: Array, weight: Array, bias: Array) -> tuple[Array, Array, Array]:
        """``max(convolution, 0)`` of images ``[n, H, W, channels]``; mean and variance ``[maps]`` of it, in float64."""
        y, sums = np.empty((*x.shape[:3], self._maps), x.dtype), np.zeros((2, self._maps))
        lacking = self._width - self._channels
        wide = np.pad(weight, ((0, 0), (0, lacking), (0, 0), (0, 0))) if lacking else weight
        factors = self._of_weights(wide, self._factors)
        for part, tiles in self._parts(len(x)):
            self._of_x.inputs(x[part].reshape(-1), self._room, self._strip, self._flat_x)
            np.matmul(self._x[:, :tiles], factors, out=self._y[:, :tiles])
            self._of_y.outputs(self._flat_y, bias, self._strip, y[part].reshape(-1), sums.reshape(-1))
        mean, square = sums / (y.size // self._maps)
        return y, mean, np.maximum(square - mean * mean, 0)

    def norm(self, y: Array, of_norm: Array) -> Array:
        """``y [n, H, W, maps]`` times ``of_norm``'s factors plus its shifts, pooled if the layer is."""
        n, high, wide, maps = y.shape
        shape = (n, high // 2, wide // 2, maps) if self._pooled else y.shape
        normed = np.empty(shape, y.dtype)
        (self._norms.pool if self._pooled else self._norms.scale)(y.reshape(-1), of_norm, normed.reshape(-1))
        return normed

    def by_norm(self, by_result: Array, y: Array, of_norm: Array) -> tuple[Array, Array]:
        """Each channel's sum of the gradient by the norm, and of that times ``y``, in float64."""
        sums, arrays = np.zeros((2, self._maps)), (by_result.reshape(-1), y.reshape(-1))
        if self._pooled:
            self._norms.by_pool(*arrays, of_norm, sums.reshape(-1))
        else:
            self._norms.by_scale(*arrays, sums.reshape(-1))
        return sums[0], sums[1]

    def by_convolution(
        self, by_result: Array, x: Array, weight: Array, y: Array, of_norm: Array, by_images: bool
    ) -> tuple[Array | None, Array, Array]:
        """The gradients by the images, if ``by_images``, the weights ``[maps, channels, 3, 3]`` and the bias.

        ``of_norm``: see :class:`raysim.training.networks.winograd_gradients.Gradients`.
        """
        by_x, by_bias = np.empty_like(x) if by_images else None, np.zeros(self._maps)
        factors = self._of_weights(weight.transpose(1, 0, 2, 3), self._turned) if by_images else None
        for part, tiles in self._parts(len(x)):
            arrays = by_result[part].reshape(-1), y[part].reshape(-1)
            self._by_outputs(*arrays, of_norm, self._strip, self._flat_y, by_bias)
            # Computed again: to keep them from forward on would take more memory than the network's images do.
            self._of_x.inputs(x[part].reshape(-1), self._room, self._strip, self._flat_x)
            by_tiles, first = self._y[:, :tiles], part.start == 0
            product = self._by_factors if first else self._part
            np.matmul(self._x[:, :tiles].transpose(0, 2, 1), by_tiles, out=product)
            if not first:
                self._by_factors += product
            if by_x is not None and factors is not None:
                np.matmul(by_tiles, factors, out=self._by_x[:, :tiles])
                self._by_inputs(self._flat_by_x, self._room_by_x, self._strip, by_x[part].reshape(-1))
        return by_x, self._by_weights(self._by_factors)[:, : self._channels], by_bias

    def _parts(self, n: int) -> Iterator[tuple[slice, int]]:
        """Images that are computed at once, with the number of their tiles."""
        for low in range(0, n, self._images):
            high = min(low + self._images, n)
            yield slice(low, high), (high - low) * self._each


def _channels_last(images: Tensor) -> Array:
    """``[b, C, H, W]`` as an array ``[b, H, W, C]``."""
    return np.ascontiguousarray(images.detach().permute(0, 2, 3, 1).numpy())
