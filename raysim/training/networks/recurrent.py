"""The recurrence of a long short-term memory with hand-written derivatives.

A step of a small memory is a dozen operations on a few kilobytes, whose cost is that of calling them. autograd doubles
their number, and a numpy call costs a third of a torch call; so this is numpy, wherever the tensors are. The gates of
all steps are kept in one array, so that most of the derivative is a few products over all steps at once.
``nn.LSTM``, which has no recurrent dropout, is as fast only for rows without padding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Recurrence(torch.autograd.Function):
    """The hidden state after the last step, ``[B, H]``, of a memory whose rows begin at zero.

    ``inputs [T, B, 4H]`` is what each step's token contributes to the gates, bias included, in the order candidate,
    input, forget, output; ``matrix [4H, H]`` is what the hidden state contributes. ``mask [B, H]``, or None, multiplies
    the hidden state where it enters the gates, alike at all steps (Y. Gal, Z. Ghahramani: *A Theoretically Grounded
    Application of Dropout in Recurrent Neural Networks*, NeurIPS 2016; Keras's ``recurrent_dropout``). ``begun [T', B,
    1]``, 0 or 1: which rows have begun in each of the first ``T' <= T`` steps; later all have. Differentiable once, by
    ``inputs`` and ``matrix``.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, matrix: Tensor, mask: Tensor | None, begun: Tensor) -> Tensor:
        """See the class."""
        H, weights = matrix.shape[1], _array(matrix)
        # All gates are one tanh: sigmoid(x) = tanh(x/2)/2 + 1/2. Rows come last, so that a gate is one piece of memory.
        halves = np.repeat(np.array([1.0, 0.5, 0.5, 0.5], weights.dtype), H)[:, None]
        gates = np.ascontiguousarray(_array(inputs).transpose(0, 2, 1))
        gates *= halves
        weights = weights * halves
        drop, starts = None if mask is None else np.ascontiguousarray(_array(mask).T), _array(begun).transpose(0, 2, 1)
        steps, rows = gates.shape[0], gates.shape[2]
        squashed = np.empty((steps, H, rows), gates.dtype)  # tanh of the cell after each step
        cells = np.zeros((steps + 1, H, rows), gates.dtype)  # before each step, and after the last
        hidden = np.zeros((steps + 1, H, rows), gates.dtype)  # likewise, under the mask
        sums, product = np.empty((4 * H, rows), gates.dtype), np.empty((H, rows), gates.dtype)
        for s in range(steps):
            z, later, sent = gates[s], cells[s + 1], hidden[s + 1]
            if s:
                np.add(z, np.matmul(weights, hidden[s], sums), z)
            np.tanh(z, z)
            g, sigmoids = z[:H], z[H:]
            np.multiply(sigmoids, 0.5, sigmoids)
            np.add(sigmoids, 0.5, sigmoids)
            np.multiply(sigmoids[H : 2 * H], cells[s], later)
            np.add(later, np.multiply(sigmoids[:H], g, product), later)
            if s < len(starts):
                np.multiply(later, starts[s], later)  # and with it the hidden state, an odd function of the cell
            t = np.tanh(later, squashed[s])
            np.multiply(sigmoids[2 * H :], t, sent)
            if drop is not None and s + 1 < steps:
                np.multiply(sent, drop, sent)
        ctx.kept = gates, squashed, cells, hidden, _array(matrix), drop, starts
        return torch.from_numpy(hidden[steps].T.copy()).to(inputs.device)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """The gradients by ``inputs`` and ``matrix``."""
        gates, squashed, cells, hidden, matrix, drop, starts = ctx.kept
        steps, H, rows = squashed.shape
        g, i, f, o = (gates[:, k * H : (k + 1) * H] for k in range(4))
        # How the gates' sums follow the cell (candidate, input, forget) and the hidden state (output).
        slopes = np.empty_like(gates).reshape(steps, 4, H, rows)
        np.multiply(i, 1 - g * g, slopes[:, 0])
        np.multiply(g, i * (1 - i), slopes[:, 1])
        np.multiply(cells[:-1], f * (1 - f), slopes[:, 2])
        np.multiply(squashed, o * (1 - o), slopes[:, 3])
        through = o * (1 - squashed * squashed)  # how the hidden state follows the cell
        h, c, product = _array(gradients[0]).T.copy(), np.zeros_like(cells[0]), np.empty_like(cells[0])
        transposed = np.ascontiguousarray(matrix.T)
        for s in reversed(range(steps)):
            np.add(c, np.multiply(h, through[s], product), c)
            if s < len(starts):
                np.multiply(c, starts[s], c)
                np.multiply(h, starts[s], h)
            slope = slopes[s]  # becomes the gradient by the gates' sums
            np.multiply(slope[:3], c, slope[:3])
            np.multiply(slope[3], h, slope[3])
            np.multiply(c, f[s], c)
            np.matmul(transposed, slope.reshape(4 * H, rows), h)
            if drop is not None:
                np.multiply(h, drop, h)
        by_inputs = np.ascontiguousarray(slopes.reshape(gates.shape).transpose(0, 2, 1))
        entering = hidden[:-1].transpose(0, 2, 1).reshape(steps * rows, H)
        by_matrix = by_inputs.reshape(steps * rows, 4 * H).T @ entering
        device = gradients[0].device
        return torch.from_numpy(by_inputs).to(device), torch.from_numpy(by_matrix).to(device), None, None


recurrence: Callable[[Tensor, Tensor, Tensor | None, Tensor], Tensor] = Recurrence.apply


def _array(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array
