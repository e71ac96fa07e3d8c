"""Forward and backward of a multi-layer perceptron over one batch, and the step that follows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raysim.training.base import ContrastTerm
from raysim.training.kernels.clipped import Traced
from raysim.training.kernels.contrast import add_gradient
from raysim.training.kernels.descent import BLAS, softmax_residual
from raysim.training.losses import LOG_LOSS, residual
from raysim.training.products import cut, has_small_products

Layers = list[tuple[NDArray[Any], NDArray[Any]]]  # (weight [out, in], bias [out]) for each layer, the first one first


class _Layer(NamedTuple):
    """A layer's memory for a batch of ``b`` rows: views ``[b, width]``, whose columns are contiguous."""

    received: NDArray[Any]
    outputs: NDArray[Any]
    pieces: NDArray[Any]
    """``outputs`` in the pieces of their product, ``[p, width / p, b]``; kept, as ``products.multiply`` would cut them
    anew each time, which is 7 % of a step."""
    residuals: NDArray[Any]


class _Between(NamedTuple):
    """Memory for ReLU between a layer and the one above it, and for the residuals that come down."""

    zeros: NDArray[Any]
    residual_pieces: NDArray[Any]
    """The lower layer's residuals in the pieces of their product, ``[p, width / p, b]``."""
    output_bits: NDArray[Any]
    residual_bits: NDArray[Any]
    mask: NDArray[Any]
    scratch: NDArray[Any]
    """The mask's memory, for norms: by then no mask is needed."""
    by_rows: NDArray[Any]
    """The mask's memory with contiguous rows, for a copy of the outputs."""


class _Batch(NamedTuple):
    layers: list[_Layer]
    between: list[_Between]
    ones: NDArray[Any]


class Passes:
    """Forward and backward over one batch, in memory that all batches of a call use in turn.

    ``widths``: ``(F, hidden..., C)``. Rows are the last axis in memory: the left factor of each product is then a
    layer's matrix without a transposition, which OpenBLAS computes up to twice as fast with AVX-512.
    """

    def __init__(self, widths: Sequence[int], dtype: np.dtype[Any], loss: str) -> None:
        self._loss, self._widths, self._dtype = loss, tuple(widths), dtype
        self._bits = np.dtype(f"i{dtype.itemsize}")
        self._sign_bit = np.array(8 * dtype.itemsize - 1, self._bits)
        self._blas = BLAS[dtype]
        self._allocate(0)

    def _allocate(self, batch: int) -> None:
        """Allocate memory for batches of up to ``batch`` rows."""
        widths = self._widths
        self._most = batch
        self._activations = [np.empty(batch * n, self._dtype) for n in widths]
        self._residuals = [np.empty(batch * n, self._dtype) for n in widths[1:]]
        self._zeros = [np.zeros(batch * n, self._dtype) for n in widths[1:-1]]
        self._masks = [np.empty(batch * n, self._bits) for n in widths[1:-1]]
        self._ones = np.ones(max(batch, *widths), self._dtype)
        self._batches: dict[int, _Batch] = {}

    def _batch(self, b: int) -> _Batch:
        if b > self._most:
            self._allocate(b)
        if b not in self._batches:
            self._batches[b] = self._views(b)
        return self._batches[b]

    def _views(self, b: int) -> _Batch:
        received, *outputs = (
            flat[: b * n].reshape(n, b).T for flat, n in zip(self._activations, self._widths, strict=True)
        )
        residuals, zeros, masks = (
            [flat[: b * n].reshape(n, b).T for flat, n in zip(some, self._widths[1:], strict=False)]
            for some in (self._residuals, self._zeros, self._masks)
        )
        layers = []
        for z, d in zip(outputs, residuals, strict=True):
            pieces = z.T.reshape(cut(z.shape[1], received.shape[1], b))
            layers.append(_Layer(received, z, pieces, d))
            received = z
        between = [
            _Between(
                zeros=zero,
                residual_pieces=lower.residuals.T.reshape(cut(zero.shape[1], upper.outputs.shape[1], b)),
                output_bits=lower.outputs.view(self._bits),
                residual_bits=lower.residuals.view(self._bits),
                mask=mask,
                scratch=mask.view(self._dtype),
                by_rows=mask.view(self._dtype).T.reshape(mask.shape),
            )
            for (lower, upper), zero, mask in zip(pairwise(layers), zeros, masks, strict=True)
        ]
        return _Batch(layers, between, self._ones[:b])

    def forward(
        self, layers: Layers, rows: NDArray[Any], labels: NDArray[Any], weights: NDArray[Any] | None = None
    ) -> None:
        """Fill the activations and the last residual, the gradient of the summed loss by the outputs ``[b, C]``.

        Each row's loss counts ``weights [b]`` times; once where None. Rows behind those that have ``labels [b]``
        only fill up the batch: their residuals are zeros.
        """
        a, memory = rows, self._batch(len(rows))
        if has_small_products():
            # The code for AVX2 multiplies by rows as they come, which are the transposed right factor, as fast.
            a = memory.layers[0].received
            np.copyto(a, rows)
        for k, (weight, bias) in enumerate(layers):
            _, z, pieces, last = memory.layers[k]
            p, width, _ = pieces.shape
            np.matmul(weight.reshape(p, width, -1), a.T, pieces)
            self._blas.ger(1.0, memory.ones, bias, 1, 1, z, 1, 1, 1)
            if k < len(memory.between):
                a = np.maximum(z, memory.between[k].zeros, out=z)  # with a scalar zero numpy is three times slower
        if len(labels) < len(rows):
            last[len(labels) :] = 0
            last, z = last[: len(labels)], z[: len(labels)]
        if self._loss != LOG_LOSS:
            last[:] = z
            residual(self._loss, last[:, 0], labels)
        elif z.shape[1] == 2:
            margin = z[:, 1] - z[:, 0]
            np.multiply(margin, 0.5, margin)
            np.tanh(margin, margin)  # sigmoid(m) = (1 + tanh(m/2))/2, which cannot overflow
            np.subtract(margin, labels, margin)
            np.multiply(margin, 0.5, last[:, 1])
            np.multiply(margin, -0.5, last[:, 0])
        else:
            last[:] = z
            softmax_residual(last, labels)
        if weights is not None:
            np.multiply(last, weights[:, None], last)

    def backward(self, layers: Layers, contrast: tuple[ContrastTerm, NDArray[Any]] | None, b: int) -> None:
        """Fill the residuals of all layers below the last, for a batch of ``b`` rows.

        ``contrast``: a further term of the loss, and its rows' directions, ``[b, width]`` or fewer rows.
        """
        memory = self._batch(b)
        for k in range(len(layers) - 1, 0, -1):
            layer, below = memory.layers[k], memory.between[k - 1]
            p, width, _ = below.residual_pieces.shape
            np.matmul(layers[k][0].T.reshape(p, width, -1), layer.residuals.T, below.residual_pieces)
            if contrast is not None and k == len(layers) - 1:
                term, v = contrast
                received, residuals = layer.received[: len(v)], memory.layers[k - 1].residuals[: len(v)]
                add_gradient(received, v, term.weight, term.temperature, residuals)
            # Outputs are >= 0 after ReLU, so the sign of -outputs as an integer is all ones where they are > 0: a mask
            # without booleans, which numpy would convert to floats at twice the price
            mask, bits = below.mask, below.residual_bits
            np.negative(below.output_bits, mask)
            np.right_shift(mask, self._sign_bit, mask)
            np.bitwise_and(bits, mask, bits)

    def step(self, rows: NDArray[Any], targets: Layers, scale: float, keep: tuple[float, float]) -> None:
        """``target <- keep * target + scale * gradient`` of the summed loss; ``keep`` of weights, and of biases."""
        memory = self._batch(len(rows))
        for k in range(len(targets) - 1, -1, -1):
            weight, bias = targets[k]
            if not len(rows):
                np.multiply(weight, keep[0], weight)
                np.multiply(bias, keep[1], bias)
                continue
            layer = memory.layers[k]
            residuals = layer.residuals
            pieces, width, _ = layer.pieces.shape
            if k and (keep[0] == 1 or pieces == 1):
                self._blas.gemm(scale, layer.received, residuals, keep[0], weight.T, 1, 0, 1)
            else:
                # OpenBLAS multiplies a large target by another factor in a pass of its own, a small one in none.
                a = rows
                if k:
                    a = memory.between[k - 1].by_rows
                    np.copyto(a, layer.received)
                for low in range(0, len(weight), width):
                    part = slice(low, low + width)
                    self._blas.gemm(scale, a.T, residuals[:, part], keep[0], weight[part].T, 0, 0, 1)
            self._blas.gemv(scale, residuals, memory.ones, keep[1], bias, 0, 1, 0, 1, 1, 1)

    def traces(self, rows: NDArray[Any]) -> list[Traced]:
        """What each layer received of the batch's ``rows``, and its residuals; the kernel's own memory."""
        first, *others = self._batch(len(rows)).layers
        return [Traced(rows, first.residuals), *(Traced(layer.received, layer.residuals) for layer in others)]

    def row_squares(self, of_rows: NDArray[Any]) -> NDArray[Any]:
        """The squared 2-norm of each row's gradient, where rows and the 1 that biases have come to ``of_rows [b]``."""
        memory = self._batch(len(of_rows))
        total: NDArray[Any] | None = None
        received = of_rows
        for layer, between in zip(memory.layers, memory.between, strict=False):
            of_layer = self._column_squares(layer.residuals, between.scratch)
            np.multiply(of_layer, received, of_layer)
            total = of_layer if total is None else np.add(total, of_layer, total)
            received = self._column_squares(layer.outputs, between.scratch)
            np.add(received, 1, received)
        last = memory.layers[-1].residuals
        squares: NDArray[Any] = np.vecdot(last, last) * received
        if total is not None:
            np.add(total, squares, squares)
        return squares

    def _column_squares(self, columns: NDArray[Any], scratch: NDArray[Any]) -> NDArray[Any]:
        """The squared 2-norm of each row of ``columns [b, width]``, whose columns are contiguous in memory."""
        np.multiply(columns, columns, scratch)
        squares: NDArray[Any] = self._blas.gemv(1.0, scratch, self._ones[: scratch.shape[1]])
        return squares

    def scale(self, rows: NDArray[Any], factors: NDArray[Any]) -> None:
        """Multiply the gradient of each of the batch's ``rows`` by its factor ``[b]``; 0 leaves the row out."""
        for layer in self._batch(len(rows)).layers:
            np.multiply(layer.residuals.T, factors, layer.residuals.T)
        if np.count_nonzero(factors) < len(factors):  # zero times what is not finite is not zero
            lost = np.flatnonzero(factors == 0)
            for a, residuals in self.traces(rows):
                a[lost] = 0
                residuals[lost] = 0
