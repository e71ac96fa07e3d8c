"""The recurrence of a long short-term memory with hand-written derivatives, for several hospitals at once.

A step of a small LSTM is a dozen operations on a few kilobytes, so the cost is that of calling them. autograd doubles
their number, and a numpy call costs a third of a torch call; so this is numpy, wherever the tensors are. The gates of
all steps are kept in one array, so that most of the derivative is a few products over all steps at once. Hospitals
with equally many rows in their batches share the calls: each has its own matrix products, of the same shapes as alone,
and all else is elementwise, so that no hospital's bits depend on which others share the calls.
``nn.LSTM``, which has no recurrent dropout, is as fast only for rows without padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raysim.training.networks.once import differentiable_once

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Gates:
    """The inputs of one hospital's batch of ``B`` rows to a recurrence of ``T`` steps from a zero state.

    - ``inputs [T, B, 4H]``: what each step's token adds to the gates, bias included, in the order candidate, input,
      forget, output.
    - ``matrix [4H, H]``: its product with the hidden state is added to the gates.
    - ``mask [B, H]`` or None: multiplies the hidden state where it enters the gates, the same at all steps (Y. Gal,
      Z. Ghahramani: *A Theoretically Grounded Application of Dropout in Recurrent Neural Networks*, NeurIPS 2016;
      Keras's ``recurrent_dropout``).
    - ``begun [T', B, 1]``: 1 for rows that have begun at each of the first ``T' <= T`` steps, 0 for others; at later
      steps all have begun.
    """

    inputs: Tensor
    matrix: Tensor
    mask: Tensor | None
    begun: Tensor


def recurrences(several: Sequence[Gates]) -> list[Tensor]:
    """The hidden state of each after its last step, ``[B, H]``; differentiable once, by ``inputs`` and ``matrix``.

    The bits of each are the same as in a call of its own.
    """
    alike: dict[tuple[int, bool], list[int]] = {}
    for place, gates in enumerate(several):
        rows = gates.inputs.shape[1]
        # BLAS multiplies a single row by other code, whose bits may depend on the row's address: not shared.
        alike.setdefault((rows if rows > 1 else -place, gates.mask is None), []).append(place)
    states: dict[int, Tensor] = {}
    for places in alike.values():
        places.sort(key=lambda place: -len(several[place].inputs))
        members = [several[place] for place in places]
        tensors = [tensor for gates in members for tensor in (gates.inputs, gates.matrix)]
        others = [(gates.mask, gates.begun) for gates in members]
        states.update(zip(places, Recurrence.apply(others, *tensors), strict=True))  # type: ignore[no-untyped-call]
    return [states[place] for place in range(len(several))]


class Recurrence(torch.autograd.Function):
    """:func:`recurrences` of ``G`` members with as many rows each, those of more steps first.

    All members end at the same step, and those with more steps begin earlier: at each step, those that have begun come
    first. Arrays are ``[step, unit, member, row]``: a gate of all members is one piece of memory.
    """

    @staticmethod
    def forward(ctx: Any, others: Sequence[tuple[Tensor | None, Tensor]], *tensors: Tensor) -> tuple[Tensor, ...]:
        """``others``: each member's mask and ``begun``; ``tensors``: inputs and matrix, member after member."""
        inputs, matrices = [_array(t) for t in tensors[::2]], [_array(t) for t in tensors[1::2]]
        steps, rows, H, dtype = len(inputs[0]), inputs[0].shape[1], matrices[0].shape[1], matrices[0].dtype
        late = [steps - len(u) for u in inputs]  # the step at which each begins
        # All gates are one tanh: sigmoid(x) = tanh(x/2)/2 + 1/2.
        half = np.array(0.5, dtype)  # a number of Python's is made into one at each call
        # Of each step: output, input and forget gate, candidate, and the cell before it, in this order. The cell after
        # it is input * candidate + forget * cell: in this order both products are one call.
        kept = np.empty((steps + 1, 5 * H, len(late), rows), dtype)
        cells = kept[:, 4 * H :]
        squashed = np.empty((steps, H, len(late), rows), dtype)  # tanh of the cell after each step
        hidden = np.zeros((steps + 1, H, len(late), rows), dtype)  # before each step, and after the last, masked
        by_hidden = np.empty((len(late), 4 * H, H), dtype)
        for k, first in enumerate(late):
            kept[:first, :, k] = squashed[:first, :, k] = cells[first, :, k] = 0.0
            _reorder(inputs[k].transpose(0, 2, 1), kept[first:steps, :, k])
            _reorder(matrices[k], by_hidden[k])
        kept[:steps, : 3 * H] *= half
        by_hidden[:, : 3 * H] *= half
        drop, starts = _masks([mask for mask, _ in others]), _starts([begun for _, begun in others], late, rows, dtype)
        sums, products = np.empty((4 * H, len(late), rows), dtype), np.empty((2 * H, len(late), rows), dtype)
        begun = 0
        for first, last, members in _stretches(late, steps):
            if begun:  # members that begin at this step have no hidden state yet
                before = hidden[first, :, :begun].transpose(1, 0, 2)
                kept[first, : 4 * H, :begun] += np.matmul(by_hidden[:begun], before).transpose(1, 0, 2)
            begun = members
            # Iterated over, rather than indexed in each step: an index takes as long as a product.
            span, after = kept[first:last, :, :members], slice(first + 1, last + 1)
            pieces = (
                span[:, : 4 * H],
                span[:, : 3 * H],
                span[:, H : 3 * H],
                span[:, 3 * H :],
                span[:, :H],
                cells[after, :, :members],
                squashed[first:last, :, :members],
                hidden[first:last, :, :members].transpose(0, 2, 1, 3),
                hidden[after, :, :members],
            )
            by, dropped = by_hidden[:members], None if drop is None else drop[:, :members]
            added, product = sums[:, :members], products[:, :members]
            summed, entered, held = added.transpose(1, 0, 2), product[:H], product[H:]
            for s, (z, sigmoids, shares, states, output, later, t, before, sent) in enumerate(
                zip(*pieces, strict=True), first
            ):
                if s > first:
                    np.matmul(by, before, summed)
                    np.add(z, added, z)
                np.tanh(z, z)
                np.multiply(sigmoids, half, sigmoids)
                np.add(sigmoids, half, sigmoids)
                np.multiply(shares, states, product)
                np.add(held, entered, later)
                if s < len(starts):
                    # and with it the hidden state, an odd function of the cell
                    np.multiply(later, starts[s, :, :members], later)
                np.tanh(later, t)
                np.multiply(output, t, sent)
                if dropped is not None and s + 1 < steps:
                    np.multiply(sent, dropped, sent)
        ctx.kept = kept, squashed, hidden, late, drop, starts
        ctx.save_for_backward(*tensors[1::2])
        return tuple(torch.from_numpy(hidden[steps, :, k].T.copy()).to(t.device) for k, t in enumerate(tensors[::2]))

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients by inputs and matrices, member after member."""
        kept, squashed, hidden, late, drop, starts = ctx.kept
        matrices = [_array(tensor) for tensor in ctx.saved_tensors]
        steps, H, G, rows = squashed.shape
        o, i, f, g, cells = (kept[:steps, k * H : (k + 1) * H] for k in range(5))
        # Of each step: the forget gate; how the gates' sums follow the cell (candidate, input, forget) and the hidden
        # state (output); how the hidden state follows the cell. Four are multiplied by the cell's gradient, two by
        # the hidden state's.
        slopes = np.empty((steps, 6, H, G, rows), kept.dtype)
        slopes[:, 0] = f
        np.multiply(i, 1 - g * g, slopes[:, 1])
        np.multiply(g, i * (1 - i), slopes[:, 2])
        np.multiply(cells, f * (1 - f), slopes[:, 3])
        np.multiply(squashed, o * (1 - o), slopes[:, 4])
        np.multiply(o, 1 - squashed * squashed, slopes[:, 5])
        sums = slopes[:, 1:5].reshape(steps, 4 * H, G, rows)  # becomes the gradient by the gates' sums
        h_all, c_all = np.empty_like(hidden[0]), np.empty_like(hidden[0])
        for k, gradient in enumerate(gradients):
            h_all[:, k] = _array(gradient).T
        forgotten = np.zeros_like(h_all)
        transposed = np.ascontiguousarray(np.stack(matrices).transpose(0, 2, 1))
        for first, last, members in reversed(_stretches(late, steps)):
            h, c = h_all[:, :members], c_all[:, :members]
            by, dropped = transposed[:members], None if drop is None else drop[:, :members]
            entering, forgotten = h.transpose(1, 0, 2), forgotten[:, :members]
            span = slopes[first:last, :, :, :members]
            slope = sums[first:last, :, :members].transpose(0, 2, 1, 3)
            pieces = span[:, :4], span[:, 4:], span[:, 5], slope, span[:, 0]
            backwards = zip(*(piece[::-1] for piece in pieces), strict=True)
            for s, (by_cell, by_state, through, at, earlier) in zip(
                reversed(range(first, last)), backwards, strict=True
            ):
                np.multiply(by_state, h, by_state)
                np.add(forgotten, through, c)
                if s < len(starts):
                    np.multiply(c, starts[s, :, :members], c)
                    np.multiply(by_state[0], starts[s, :, :members], by_state[0])
                np.multiply(by_cell, c, by_cell)
                np.matmul(by, at, entering)
                if dropped is not None:
                    np.multiply(h, dropped, h)
                forgotten = earlier
        by_arguments: list[Tensor | None] = [None]  # ``others`` has no gradient
        for k, first in enumerate(late):
            by_inputs = np.ascontiguousarray(sums[first:, :, k].transpose(0, 2, 1))
            entered = hidden[first:-1, :, k].transpose(0, 2, 1).reshape(-1, H)
            by_matrix = by_inputs.reshape(-1, 4 * H).T @ entered
            by_arguments += [torch.from_numpy(array).to(gradients[k].device) for array in (by_inputs, by_matrix)]
        return tuple(by_arguments)


def _stretches(late: Sequence[int], steps: int) -> list[tuple[int, int, int]]:
    """Steps ``first`` to ``last`` in which the same number of members, who begin at ``late``, have begun."""
    cuts = sorted({*late, steps})
    return [(first, last, sum(start <= first for start in late)) for first, last in pairwise(cuts)]


def _masks(masks: Sequence[Tensor | None]) -> Array | None:
    """The masks of all members, ``[H, G, rows]``, or None."""
    arrays = [_array(mask).T for mask in masks if mask is not None]
    return np.ascontiguousarray(np.stack(arrays, axis=1)) if arrays else None


def _starts(begun: Sequence[Tensor], late: Sequence[int], rows: int, dtype: np.dtype[Any]) -> Array:
    """``[step, 1, G, rows]``: 1 where a row has begun, 0 before; only for steps at which some row has not begun."""
    least = max((first + len(each) for first, each in zip(late, begun, strict=True) if len(each)), default=0)
    starts = np.ones((least, 1, len(late), rows), dtype)
    for k, (first, each) in enumerate(zip(late, begun, strict=True)):
        starts[first : first + len(each), 0, k] = _array(each)[:, :, 0]
    return starts


def _reorder(gates: Array, into: Array) -> None:
    """Copy ``gates [..., 4H, n]`` into the first 4H of ``into``, in the order output, input, forget, candidate."""
    H = gates.shape[-2] // 4
    into[..., :H, :] = gates[..., 3 * H :, :]
    into[..., H : 3 * H, :] = gates[..., H : 3 * H, :]
    into[..., 3 * H : 4 * H, :] = gates[..., :H, :]


def _array(tensor: Tensor) -> Array:
    array: Array = tensor.detach().cpu().numpy()
    return array
