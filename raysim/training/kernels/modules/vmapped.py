"""A module's gradient for many hospitals at once."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from raysim.training.base import Layout
from raysim.training.kernels.modules.losses import TORCH_LOSSES
from raysim.training.losses import LOG_LOSS


class Vmapped:
    """See ``raysim.training.kernels.batched.Gradient``."""

    def __init__(self, module: nn.Module, layout: Layout, loss: str = LOG_LOSS) -> None:
        row_loss = TORCH_LOSSES[loss]

        def total(theta: Tensor, X: Tensor, y: Tensor, weight: Tensor) -> Tensor:
            z = functional_call(module, layout.split(theta), (X,))
            return (row_loss(z, y) * weight).sum()

        self._gradient: Callable[..., Tensor] = vmap(grad(total))

    def accumulate(self, theta: Tensor, X: Tensor, y: Tensor, weight: Tensor, into: Tensor) -> None:
        """See ``raysim.training.kernels.batched.Gradient``."""
        into += self._gradient(theta, X, y, weight)
