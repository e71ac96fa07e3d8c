"""A convolution of 3 x 3 with ReLU, batch norm and max pooling, which trains on a CPU by Winograd's algorithm.

It takes half the time of torch's layers, whose convolutions multiply at the processor's limit, and whose other passes
each go through all images again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from raysim.training.networks.numpy_layers import NumpyLayer
from raysim.training.networks.written import Array

LEAST_CHANNELS = 16
"""Images of fewer channels get zeros for the others: the innermost loops are over channels."""
PLACES = 32
"""Tiles that are computed at once, at least: with their products they stay in a core's cache."""


class NormedConvolution(nn.Module):
    """``batch norm(max(convolution, 0))``; the convolution is padded by one."""

    def __init__(self, channels: int, maps: int) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(channels, maps, 3, padding=1), nn.BatchNorm2d(maps)

    def forward(self, x: Tensor) -> Tensor:
        """Images ``[b, channels, H, W]`` to ``[b, maps, H, W]``."""
        normed: Tensor = self.norm(self.convolution(x).relu_())
        return normed

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


class PooledConvolutions(NumpyLayer):
    """A :class:`NormedConvolution` from each of ``channels`` to the next, then the largest of each 2 x 2.

    Sides of images are multiples of 4. Where it trains in a visit's loop on a CPU (:func:`by_numpy`) it is a
    :class:`Winograd`.
    """

    def __init__(self, *channels: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(NormedConvolution(a, b) for a, b in pairwise(channels))
        self._channels = channels
        self._steps: tuple[Any, list[Steps]] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Images ``[b, channels, H, W]``, channels last in memory, to ``[b, maps, H / 2, W / 2]``."""
        if self.layers[-1].norm.training and torch.is_grad_enabled() and self.computes_by_numpy():
            result: Tensor = Winograd.apply(x, self, *self.parameters())  # type: ignore[no-untyped-call]
            return result
        for layer in self.layers:
            x = layer(x)
        return nn.functional.max_pool2d(x, 2)

    def steps(self, x: Array) -> list[Steps]:
        """The arithmetic of each layer for images like ``x [b, H, W, channels]``."""
        key = x.shape[1:], x.dtype
        if self._steps is None or self._steps[0] != key:
            size, last = x.shape[1:3], len(self.layers) - 1
            self._steps = (
                key,
                [Steps(*size, a, b, k > 0, k == last, x.dtype) for k, (a, b) in enumerate(pairwise(self._channels))],
            )
        return self._steps[1]

    def __getstate__(self) -> dict[str, Any]:
        # A copy makes memory of its own: that of steps has arrays that are views of others.
        return self.__dict__ | {"_steps": None}


class Normed(NamedTuple):
    """What the derivatives of a layer need of its forward pass."""

    x: Array
    """The images ``[n, H, W, channels]`` that it was given, without their norm if they have one."""
    of_x: Array
    """Each channel's factor of that norm, then each one's shift; empty if they have none."""
    y: Array
    """``max(convolution, 0)``, ``[n, H, W, maps]``."""
    of_y: Array
    """Factors and shifts of its norm."""
    mean: Array
    """Of each map of ``y``, in float64."""
    deviation: Array
    """Likewise, with what batch norm adds to the variance."""


class Winograd(torch.autograd.Function):
    """:class:`PooledConvolutions` on a CPU. Differentiable once; no transform of ``torch.func`` knows it.

    The norm of a layer is taken where the next one reads its images, and is not stored.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, module: PooledConvolutions, *parameters: Tensor) -> Tensor:
        """See the class."""
        images = _channels_last(x)
        of_images, kept, steps = np.empty(0, images.dtype), [], module.steps(images)
        for layer, step, own in zip(module.layers, steps, _by_layer(parameters), strict=True):
            weight, bias, scale, shift = own
            y, mean, variance = step.convolve(images, of_images, weight, bias)
            layer.follow(mean, variance, y.size // len(mean))
            deviation = np.sqrt(variance + layer.norm.eps)
            factor = scale / deviation
            of_y = np.concatenate([factor, shift - factor * mean]).astype(y.dtype)
            kept.append(Normed(images, of_images, y, of_y, mean, deviation))
            images, of_images = y, of_y
        ctx.steps, ctx.kept = steps, kept
        ctx.save_for_backward(*parameters)
        return torch.from_numpy(steps[-1].pool(images, of_images)).permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients by all that ``forward`` is given, but the module."""
        by_result: Array | None = _channels_last(gradients[0])
        by_parameters: list[Array] = []
        parameters = _by_layer(ctx.saved_tensors)
        sums = ctx.steps[-1].by_pool(by_result, ctx.kept[-1])
        for k in range(len(ctx.kept))[::-1]:
            kept, (weight, _, scale, _) = ctx.kept[k], parameters[k]
            n, (by_shift, products) = kept.y.size // len(kept.mean), sums
            by_scale = (products - kept.mean * by_shift) / kept.deviation
            # The derivative by y is linear in that by its norm and in y.
            slope = scale / kept.deviation
            bend = -slope * by_scale / (n * kept.deviation)
            line = np.concatenate([slope, bend, -slope * by_shift / n - bend * kept.mean]).astype(kept.y.dtype)
            by_images = k > 0 or ctx.needs_input_grad[0]
            by_result, sums, by_weight, by_bias = ctx.steps[k].by_convolution(by_result, kept, weight, line, by_images)
            by_parameters[:0] = [by_weight, by_bias, by_scale, by_shift]
        images = None if by_result is None else torch.from_numpy(by_result).permute(0, 3, 1, 2)
        return images, None, *(torch.from_numpy(a.astype(kept.y.dtype, copy=False)) for a in by_parameters)


class Steps:
    """The arithmetic of a layer for images of one size, a few at a time, in memory that all calls use.

    ``normed``: whether its images are those of the layer before, and normed where they are read; ``pooled``: whether
    its norms are pooled.
    """

    def __init__(
        self, high: int, wide: int, channels: int, maps: int, normed: bool, pooled: bool, dtype: Any
    ) -> None:
        # numba's import takes a third of a second
        from raysim.training.networks import compiled, norms, winograd, winograd_gradients, winograd_passes, winograd_weights

        width = max(channels, LEAST_CHANNELS)
        self._memory, self._passes = compiled.MEMORY, winograd_passes
        self._rows, self._each = high // winograd.TILE, wide // winograd.TILE
        self._at_once = -(-PLACES // self._each)
        self._channels, self._width, self._maps, self._wide = channels, width, maps, wide
        places = self._at_once * self._each
        of_x = winograd.transforms(high, wide, width, places, dtype, channels, normed)
        gradients = winograd_gradients.gradients(wide, maps, places, dtype)
        self._loops = winograd_passes.Loops(
            winograd_passes.product(dtype),
            of_x.inputs.address,
            winograd.transforms(high, wide, maps, places, dtype).outputs.address,
            winograd.transforms(high, wide, channels, places, dtype, normed=normed).by_inputs.address,
            (gradients.by_pooled if pooled else gradients.by_outputs).address,
        )
        self._norms = norms.norms(wide, maps)
        self._weights = winograd_weights.weights(channels, maps, width)
        lines, points = winograd.LINES * (wide + 2), winograd.POINTS
        self._lengths = (
            lines * width,
            winograd.TILE * wide * maps,
            points * (width + maps),
            *(points * winograd.plane(*of) for of in ((places, width), (places, maps), (width, maps))),
        )
        self._of_blas = np.empty(8, np.int64), np.empty(2, dtype)
        self._lengths_by = points * winograd.plane(maps, channels), lines * channels

    def convolve(self, x: Array, of_x: Array, weight: Array, bias: Array) -> tuple[Array, Array, Array]:
        """``max(convolution, 0)`` of images ``[n, H, W, channels]``; mean and variance ``[maps]`` of it, in float64."""
        y, sums = np.empty((*x.shape[:3], self._maps), x.dtype), np.zeros(2 * self._maps)
        memory = self._memory.take(x.dtype, *self._lengths)
        _, _, strip, *_, factors = memory
        self._weights.points(weight.reshape(-1), strip, factors)
        of_x = self._spread(of_x)
        self._passes.forward(
            self._loops, self._sizes(len(x)), x.reshape(-1), of_x, bias, y.reshape(-1), sums, *memory, *self._of_blas
        )
        mean, square = sums.reshape(2, -1) / (y.size // self._maps)
        return y, mean, np.maximum(square - mean * mean, 0)

    def pool(self, y: Array, of_y: Array) -> Array:
        """The largest of each 2 x 2 of the norms of ``y [n, H, W, maps]``."""
        n, high, wide, maps = y.shape
        pooled = np.empty((n, high // 2, wide // 2, maps), y.dtype)
        self._norms.pool(y.reshape(-1), of_y, pooled.reshape(-1))
        return pooled

    def by_pool(self, by_pooled: Array, kept: Normed) -> Array:
        """Each map's sum of the gradient by the norm, and of that times ``y``, ``[2, maps]`` in float64."""
        sums = np.zeros(2 * self._maps)
        self._norms.by_pool(by_pooled.reshape(-1), kept.y.reshape(-1), kept.of_y, sums)
        return sums.reshape(2, -1)

    def by_convolution(
        self, by_result: Array, kept: Normed, weight: Array, line: Array, by_images: bool
    ) -> tuple[Array | None, Array, Array, Array]:
        """The gradients by the images' norm, if ``by_images``; the sums of :meth:`by_pool` for the layer before.

        Then the gradients by the weights ``[maps, channels, 3, 3]`` and the bias. ``by_result``: the gradient by the
        norm, or by the pooled one. ``line``: the first of ``of_norm`` in
        :class:`raysim.training.networks.winograd_gradients.Gradients`.
        """
        x, flat_x = kept.x, kept.x.reshape(-1)
        by_x, sums, by_bias = np.empty_like(x if by_images else x[:0]), np.zeros(2 * self._channels), np.zeros(self._maps)
        *memory, turned, room_by = self._memory.take(x.dtype, *self._lengths, *self._lengths_by)
        _, _, strip, *_, by_factors = memory
        if by_images:
            self._weights.turned(weight.reshape(-1), strip, turned)
        self._passes.backward(
            self._loops,
            self._sizes(len(x)),
            by_result.reshape(-1),
            np.concatenate([line, kept.of_y]),
            flat_x,
            self._spread(kept.of_x),
            kept.y.reshape(-1),
            by_bias,
            *memory,
            by_images,
            by_x.reshape(-1),
            sums,
            turned,
            room_by,
            *self._of_blas,
        )
        by_weight = np.empty_like(weight)
        self._weights.by_weight(by_factors, strip, by_weight.reshape(-1))
        return by_x if by_images else None, sums.reshape(2, -1), by_weight, by_bias

    def _sizes(self, n: int) -> Any:
        """Those of ``n`` images."""
        return self._passes.Sizes(
            n * self._rows, self._at_once, self._each, self._channels, self._width, self._maps
        )

    def _spread(self, of_norm: Array) -> Array:
        """Factors and shifts of all numbers of a line."""
        return np.tile(of_norm.reshape(2, -1), self._wide).reshape(-1)


def _channels_last(images: Tensor) -> Array:
    """``[b, C, H, W]`` as an array ``[b, H, W, C]``."""
    return np.ascontiguousarray(images.detach().permute(0, 2, 3, 1).numpy())


def _by_layer(parameters: Sequence[Tensor]) -> list[list[Array]]:
    """Each layer's weights and bias, scale and shift."""
    arrays = [parameter.detach().numpy() for parameter in parameters]
    return [arrays[k : k + 4] for k in range(0, len(arrays), 4)]
