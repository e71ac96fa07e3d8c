"""Dropout from uniform numbers, which cost less to draw on a CPU than ``nn.Dropout``'s Bernoulli ones."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

LARGE = 8192
"""From so many numbers on they are drawn by numpy, which takes a third of the time but has to be started."""
_PARTS = 2**16


class Dropout(nn.Module):
    """Zero with probability ``rate``, else divided by ``1 - rate``, in training; the identity in evaluation."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """``x`` under a new mask."""
        return x * mask(x, self.rate) if self.training else x


def mask(like: Tensor, rate: float) -> Tensor:
    """Of the shape of ``like``: 0 with probability ``rate``, else ``1 / (1 - rate)``, so that the mean is 1.

    Where ``LARGE`` numbers or more are drawn on a CPU, ``rate`` is rounded to a multiple of 1/65,536.
    """
    # numbers of eight bits would be below a rate more or less often than they should
    drawn = torch.float32 if like.dtype == torch.bfloat16 else like.dtype
    if like.device.type == "cpu" and like.numel() >= LARGE:
        dropped = round(rate * _PARTS)
        parts = torch.from_numpy(_sixteen_bits(like.numel()) >= dropped).reshape(like.shape).to(drawn)
        return parts.mul_(_PARTS / (_PARTS - dropped)).to(like.dtype)
    return torch.rand_like(like, dtype=drawn).ge_(rate).to(like.dtype).mul_(1.0 / (1.0 - rate))


def _sixteen_bits(n: int) -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
    """Whole numbers below 65,536 from a stream that torch's generator seeds."""
    words = np.random.SFC64(int(torch.randint(2**63 - 1, ()))).random_raw(-(-n // 4))
    return words.view(np.uint16)[:n]
