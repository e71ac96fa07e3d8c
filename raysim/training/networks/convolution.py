"""A convolution of 3 x 3 with ReLU, batch norm and max pooling, which trains on a CPU by Winograd's algorithm.

It takes half the time of torch's layers, whose convolutions multiply at the processor's limit, and whose other passes
each go through all images again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raysim.training.loops.winograd.points import TILE
from raysim.training.networks.numpy_layers import NumpyLayer
from raysim.training.networks.once import differentiable_once
from raysim.training.networks.winograd.chain import Parameters, chain
from raysim.training.networks.written import Array


class NormedConvolution(nn.Module):
    """``batch norm(max(convolution, 0))``; the convolution is padded by one."""

    def __init__(self, channels: int, maps: int) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(channels, maps, 3, padding=1), nn.BatchNorm2d(maps)

    def forward(self, x: Tensor) -> Tensor:
        """Images ``[b, channels, H, W]`` to ``[b, maps, H, W]``."""
        normed: Tensor = self.norm(self.convolution(x).relu_())
        return normed


class PooledConvolutions(NumpyLayer):
    """A :class:`NormedConvolution` from each of ``channels`` to the next, then the largest of each 2 x 2.

    Where it trains in a visit's loop on a CPU (:func:`by_numpy`) it is a :class:`Winograd` of what that takes.
    """

    def __init__(self, *channels: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(NormedConvolution(a, b) for a, b in pairwise(channels))
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        """Images ``[b, channels, H, W]``, channels last in memory, to ``[b, maps, H / 2, W / 2]``."""
        if torch.is_grad_enabled() and self.computes_by_numpy():
            parameters = list(self.parameters())
            if self._for_winograd(x, parameters):
                result: Tensor = Winograd.apply(x, self, *parameters)  # type: ignore[no-untyped-call]
                return result
        for layer in self.layers:
            x = layer(x)
        return nn.functional.max_pool2d(x, 2)

    def _for_winograd(self, x: Tensor, parameters: Sequence[Tensor]) -> bool:
        """Whether :class:`Winograd` takes ``x`` and the layers as they are. Others are torch's to compute or refuse."""
        return (
            x.dtype in (torch.float32, torch.float64)
            and all(parameter.dtype == x.dtype for parameter in parameters)
            and x.dim() == 4
            and x.shape[1] == self.channels[0]
            and x.shape[2] % TILE == x.shape[3] % TILE == 0 < x.numel()
            and all(
                norm.training and norm.affine and norm.track_running_stats and norm.momentum is not None
                for norm in self.norms()
            )
        )

    def norms(self) -> list[nn.BatchNorm2d]:
        """Those of its layers."""
        return [layer.norm for layer in self.layers if isinstance(layer, NormedConvolution)]


class Winograd(torch.autograd.Function):
    """:class:`PooledConvolutions` that train, on images ``x`` of float32 or float64 whose sides are multiples of 4.

    On a CPU. Differentiable once; no transform of ``torch.func`` knows it.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, module: PooledConvolutions, *parameters: Tensor) -> Tensor:
        """See the class."""
        images, norms = _channels_last(x), module.norms()
        arithmetic = chain(*images.shape[1:3], module.channels, images.dtype)
        pooled, (_, *made), kept = arithmetic.forward(images, _by_layer(parameters), [norm.eps for norm in norms])
        for norm, of in zip(norms, kept, strict=True):
            follow(norm, of.mean, of.variance, of.rows)
        ctx.arithmetic, ctx.norms = arithmetic, kept
        # torch sees what changes until the derivatives are taken, and then lets go of all.
        ctx.save_for_backward(x, *parameters, *map(torch.from_numpy, made))
        return _channels_first(pooled)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients by all that ``forward`` is given, but the module."""
        (x, *saved), (by_needed, _, *of_parameters) = ctx.saved_tensors, ctx.needs_input_grad
        count = len(of_parameters)
        images, parameters = [_channels_last(x), *(y.numpy() for y in saved[count:])], _by_layer(saved[:count])
        by_pooled = _channels_last(gradients[0])
        by_images, by_layer = ctx.arithmetic.backward(by_pooled, images, ctx.norms, parameters, by_needed)
        results = (torch.from_numpy(part.astype(by_pooled.dtype, copy=False)) for own in by_layer for part in own)
        return None if by_images is None else _channels_first(by_images), None, *results


def follow(norm: nn.BatchNorm2d, mean: Array, variance: Array, rows: int) -> None:
    """Move the running statistics of ``norm`` towards those of a batch in which a channel has so many ``rows``."""
    assert norm.momentum is not None
    assert norm.num_batches_tracked is not None
    for running, value in (norm.running_mean, mean), (norm.running_var, variance * (rows / (rows - 1))):
        assert running is not None
        kept = running.numpy()
        kept += norm.momentum * (value - kept)
    norm.num_batches_tracked.add_(1)


def _channels_last(images: Tensor) -> Array:
    """``[b, C, H, W]`` as an array ``[b, H, W, C]``."""
    return np.ascontiguousarray(images.detach().permute(0, 2, 3, 1).numpy())


def _channels_first(images: Array) -> Tensor:
    """``[b, H, W, C]`` as a tensor ``[b, C, H, W]`` of the same memory."""
    return torch.from_numpy(images).permute(0, 3, 1, 2)


def _by_layer(parameters: Sequence[Tensor]) -> list[Parameters]:
    # Loops read memory as it lies: it must have the order of the axes.
    arrays = [np.ascontiguousarray(parameter.detach().numpy()) for parameter in parameters]
    return [Parameters(*arrays[k : k + 4]) for k in range(0, len(arrays), 4)]
