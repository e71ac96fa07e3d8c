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
        (steps, rows, _), H, weights = inputs.shape, matrix.shape[1], _array(matrix)
        # All gates are one tanh: sigmoid(x) = tanh(x/2)/2 + 1/2. Rows come last, so that a gate is one piece of memory.
        half = np.array(0.5, weights.dtype)  # a number of Python's is made into one at each call
        # Of each step, the gates output, input, forget, candidate, and the cell before it: of these the second and
        # third times the fourth and fifth make the cell after it, in one product.
        kept = np.empty((steps + 1, 5 * H, rows), weights.dtype)
        gates, cells = kept[:steps, : 4 * H], kept[:, 4 * H :]
        _reorder(_array(inputs).transpose(0, 2, 1), gates)
        kept[:steps, : 3 * H] *= half
        cells[0] = 0.0
        by_hidden = np.empty_like(weights)
        _reorder(weights, by_hidden)
        by_hidden[: 3 * H] *= half
        drop, starts = None if mask is None else np.ascontiguousarray(_array(mask).T), _array(begun).transpose(0, 2, 1)
        squashed = np.empty((steps, H, rows), kept.dtype)  # tanh of the cell after each step
        hidden = np.zeros((steps + 1, H, rows), kept.dtype)  # before each step, and after the last, under the mask
        sums, products = np.empty((4 * H, rows), kept.dtype), np.empty((2 * H, rows), kept.dtype)
        entered, held = products[:H], products[H:]
        # What a step works on comes from an iteration: to cut it out takes as long as to multiply it.
        factors = kept[:, H : 3 * H], kept[:, 3 * H :]
        pieces = gates, kept[:, : 3 * H], *factors, kept[:, :H], cells[1:], squashed, hidden, hidden[1:]
        for s, (z, sigmoids, shares, states, output, later, t, before, sent) in enumerate(zip(*pieces, strict=False)):
            if s:
                np.add(z, np.matmul(by_hidden, before, sums), z)
            np.tanh(z, z)
            np.multiply(sigmoids, half, sigmoids)
            np.add(sigmoids, half, sigmoids)
            np.multiply(shares, states, products)
            np.add(held, entered, later)
            if s < len(starts):
                np.multiply(later, starts[s], later)  # and with it the hidden state, an odd function of the cell
            np.tanh(later, t)
            np.multiply(output, t, sent)
            if drop is not None and s + 1 < steps:
                np.multiply(sent, drop, sent)
        ctx.kept = kept, squashed, hidden, _array(matrix), drop, starts
        return torch.from_numpy(hidden[steps].T.copy()).to(inputs.device)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """The gradients by ``inputs`` and ``matrix``."""
        kept, squashed, hidden, matrix, drop, starts = ctx.kept
        steps, H, rows = squashed.shape
        o, i, f, g, cells = (kept[:steps, k * H : (k + 1) * H] for k in range(5))
        # Of each step: the forget gate; how the gates' sums follow the cell (candidate, input, forget) and the hidden
        # state (output); how the hidden state follows the cell. Four are multiplied by the cell's gradient, two by
        # the hidden state's.
        slopes = np.empty((steps, 6, H, rows), kept.dtype)
        slopes[:, 0] = f
        np.multiply(i, 1 - g * g, slopes[:, 1])
        np.multiply(g, i * (1 - i), slopes[:, 2])
        np.multiply(cells, f * (1 - f), slopes[:, 3])
        np.multiply(squashed, o * (1 - o), slopes[:, 4])
        np.multiply(o, 1 - squashed * squashed, slopes[:, 5])
        sums = slopes[:, 1:5].reshape(steps, 4 * H, rows)  # becomes the gradient by the gates' sums
        h, c, forgotten = _array(gradients[0]).T.copy(), np.empty_like(hidden[0]), np.zeros_like(hidden[0])
        transposed = np.ascontiguousarray(matrix.T)
        pieces = slopes[:, :4], slopes[:, 4:], slopes[:, 5], sums, slopes[:, 0]
        backwards = zip(*(piece[::-1] for piece in pieces), strict=True)
        for s, (by_cell, by_hidden, through, slope, earlier) in zip(reversed(range(steps)), backwards, strict=True):
            np.multiply(by_hidden, h, by_hidden)
            np.add(forgotten, through, c)
            if s < len(starts):
                np.multiply(c, starts[s], c)
                np.multiply(by_hidden[0], starts[s], by_hidden[0])
            np.multiply(by_cell, c, by_cell)
            np.matmul(transposed, slope, h)
            if drop is not None:
                np.multiply(h, drop, h)
            forgotten = earlier
        by_inputs = np.ascontiguousarray(sums.transpose(0, 2, 1))
        entering = hidden[:-1].transpose(0, 2, 1).reshape(steps * rows, H)
        by_matrix = by_inputs.reshape(steps * rows, 4 * H).T @ entering
        device = gradients[0].device
        return torch.from_numpy(by_inputs).to(device), torch.from_numpy(by_matrix).to(device), None, None


recurrence: Callable[[Tensor, Tensor, Tensor | None, Tensor], Tensor] = Recurrence.apply


def _reorder(gates: NDArray[Any], into: NDArray[Any]) -> None:
    """Copy ``gates [..., 4H, n]`` in the order output, input, forget, candidate."""
    H = gates.shape[-2] // 4
    into[..., :H, :] = gates[..., 3 * H :, :]
    into[..., H : 3 * H, :] = gates[..., H : 3 * H, :]
    into[..., 3 * H :, :] = gates[..., :H, :]


def _array(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array
