"""Models of the hand-written kernels as plain ``torch`` modules, for use outside raysim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn


def dense(layers: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> nn.Module:
    """Layers (weight ``[out, in]``, bias ``[out]``) with ReLU between them; a single output is ``[n]``."""
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
