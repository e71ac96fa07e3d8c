"""The export of models as plain ``torch`` modules with the same outputs, for use outside raysim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from raysim.training.losses import LOG_LOSS


def dense(layers: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> nn.Module:
    """Return a module of dense layers with ReLU between them.

    ``layers`` are pairs of weight ``[out, in]`` and bias ``[out]``. If the last layer has one output, the module's
    outputs have the shape ``[n]``.
    """
    parts: list[nn.Module] = []
    for weight, bias in layers:
        linear = nn.Linear(weight.shape[1], weight.shape[0])
        linear.weight = nn.Parameter(torch.from_numpy(np.array(weight)))
        linear.bias = nn.Parameter(torch.from_numpy(np.array(bias)))
        parts += [linear, nn.ReLU()]
    parts.pop()
    if len(layers[-1][1]) == 1:
        parts.append(nn.Flatten(0))
    return nn.Sequential(*parts)


class Margins(nn.Module):
    """A module whose outputs are those of :meth:`ModuleModel.logits`."""

    def __init__(self, module: nn.Module, loss: str) -> None:
        super().__init__()
        self.module, self._loss = module, loss

    def forward(self, X: Tensor) -> Tensor:
        """Return the outputs for rows ``[n, F]``: ``[n, C]`` for more than two classes, else ``[n]``."""
        return margins(self.module(X), self._loss)


def margins(z: Tensor, loss: str) -> Tensor:
    """Convert a module's outputs ``z [n, outputs]`` to the outputs of a model.

    The result is the margins ``z_1 - z_0`` for two classes, and the predictions for a real-valued label, ``[n]`` each.
    For more than two classes it is ``z``.
    """
    if loss != LOG_LOSS:
        return z[:, 0]
    return z[:, 1] - z[:, 0] if z.shape[1] == 2 else z


class Means(nn.Module):
    """A module that outputs the exponentials of the outputs of ``module``, which are first limited to ``largest``."""

    def __init__(self, module: nn.Module, largest: float) -> None:
        super().__init__()
        self.module, self._largest = module, largest

    def forward(self, X: Tensor) -> Tensor:
        """Return the predicted mean ``[n]`` for each of the rows ``[n, F]``."""
        return torch.exp(self.module(X).clamp(max=self._largest))
