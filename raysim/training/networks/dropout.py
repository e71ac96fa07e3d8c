"""Dropout from uniform numbers, which cost less to draw on a CPU than ``nn.Dropout``'s Bernoulli ones."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from raysim.training.machine_code import function

LARGE = 8192
"""From so many numbers on a compiled loop draws them, in a tenth of the time."""
_PARTS = 2**16
_HALVES, _COMPILED = (torch.bfloat16, torch.float16), (torch.float32, torch.float64)


class Dropout(nn.Module):
    """Zero with probability ``rate``, else divided by ``1 - rate``, in training; the identity in evaluation.

    Raises ``ValueError`` for a rate below 0 or above 1.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        if not 0 <= rate <= 1:
            raise ValueError(f"a rate of dropout is a probability, not {rate}")
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """``x`` under a new mask."""
        return x * mask(x, self.rate) if self.training else x


def mask(like: Tensor, rate: float) -> Tensor:
    """Of the shape of ``like``: 0 with probability ``rate``, else ``1 / (1 - rate)``, so that the mean is 1.

    Where ``LARGE`` numbers or more are drawn on a CPU, ``rate`` is rounded to a multiple of 1/65,536. With a rate of 1
    all are 0. Raises torch's ``NotImplementedError`` for whole numbers.
    """
    # numbers of eight bits would be below a rate more or less often than they should
    drawn = torch.float32 if like.dtype in _HALVES else like.dtype
    if like.device.type == "cpu" and like.numel() >= LARGE and drawn in _COMPILED:
        dropped, kept = round(rate * _PARTS), torch.empty_like(like, dtype=drawn)
        # In the order of memory, so that a product with ``like`` is one pass.
        flat = kept.as_strided((like.numel(),), (1,)).numpy()
        seed, values = int(torch.randint(2**63 - 1, ())), np.array([0, _factor(dropped / _PARTS)], flat.dtype)
        function("masks", "store", "nnaan", flat.dtype)(seed, dropped, values.ctypes.data, flat.ctypes.data, len(flat))
        return kept.to(like.dtype)
    return torch.rand_like(like, dtype=drawn).ge_(rate).to(like.dtype).mul_(_factor(rate))


def _factor(rate: float) -> float:
    return 1.0 / (1.0 - rate) if rate < 1 else 0.0
