"""A perceptron's passes over batches of many sizes, in memory that all of them use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from raysim.training.kernels.mlp_passes import Layers, Passes
from raysim.training.losses import LOG_LOSS

WIDTHS = (7, 20, 5, 3)


def layers() -> Layers:
    rng = np.random.default_rng(1)
    sizes = zip(WIDTHS[1:], WIDTHS[:-1], strict=True)
    return [(rng.standard_normal((out, into)), rng.standard_normal(out)) for out, into in sizes]


def stepped(passes: Passes, rows: int) -> list[np.ndarray]:
    """The outputs of a batch of so many rows, and the parameters after its step."""
    rng, ours = np.random.default_rng(rows), layers()
    X, y = rng.standard_normal((rows, WIDTHS[0])), rng.integers(0, 3, rows)
    passes.forward(ours, X, y)
    outputs = passes.outputs(ours, X).copy()
    passes.backward(ours, None, rows)
    passes.step(X, ours, -0.1, (0.9, 1.0))
    return [outputs, *(part for layer in ours for part in layer)]


def by_autograd(rows: int) -> list[Any]:
    rng, ours = np.random.default_rng(rows), layers()
    X, y = rng.standard_normal((rows, WIDTHS[0])), rng.integers(0, 3, rows)
    tensors = [torch.from_numpy(part).requires_grad_() for layer in ours for part in layer]
    z = torch.from_numpy(X)
    for k in range(0, len(tensors), 2):
        z = nn.functional.linear(z.relu() if k else z, tensors[k], tensors[k + 1])
    torch.autograd.backward(nn.functional.cross_entropy(z, torch.from_numpy(y), reduction="sum"))
    moved = [(0.9 if t.dim() > 1 else 1.0) * t - 0.1 * t.grad for t in tensors if t.grad is not None]
    return [z.detach().numpy(), *(tensor.detach().numpy() for tensor in moved)]


@pytest.mark.parametrize("rows", [1, 2, 5, 33])
def test_a_step_is_that_of_autograd(rows: int) -> None:
    passes = Passes(WIDTHS, np.dtype(np.float64), LOG_LOSS)
    for ours, theirs in zip(stepped(passes, rows), by_autograd(rows), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


def test_batches_that_share_memory_keep_their_bits() -> None:
    sizes = [5, 33, 1, 16, 5, 33]
    alone = [stepped(Passes(WIDTHS, np.dtype(np.float64), LOG_LOSS), rows) for rows in sizes]
    passes = Passes(WIDTHS, np.dtype(np.float64), LOG_LOSS)
    for rows, expected in zip(sizes, alone, strict=True):
        for ours, theirs in zip(stepped(passes, rows), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
