"""Forward and backward of a multi-layer perceptron over one batch, and the step that follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raysim.training.base import ContrastTerm
from raysim.training.kernels.clipped import Traced
from raysim.training.kernels.contrast import add_gradient
from raysim.training.kernels.descent import BLAS, softmax_residual
from raysim.training.losses import LOG_LOSS, residual

Layers = list[tuple[NDArray[Any], NDArray[Any]]]  # (weight [out, in], bias [out]) for each layer, the first one first


class _Batch(NamedTuple):
    """Memory for a batch of ``b`` rows: views ``[b, width]`` of each layer, whose columns are contiguous."""

    outputs: list[NDArray[Any]]
    residuals: list[NDArray[Any]]
    zeros: list[NDArray[Any]]
    masks: list[NDArray[Any]]
    scratch: list[NDArray[Any]]
    """Working memory for norms: that of the masks, which are no longer needed then."""
    ones: NDArray[Any]


class Passes:
    """Forward and backward over one batch, in memory that all batches of a call use in turn.

    ``widths``: the outputs of each layer. Rows are the last axis in memory: the left factor of each product is then a
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
        hidden = self._widths[:-1]
        self._most = batch
        self._outputs, self._residuals = ([np.empty(batch * n, self._dtype) for n in self._widths] for _ in range(2))
        self._zeros = [np.zeros(batch * n, self._dtype) for n in hidden]
        self._masks = [np.empty(batch * n, self._bits) for n in hidden]
        self._ones = np.ones(max(batch, *self._widths), self._dtype)
        self._batches: dict[int, _Batch] = {}

    def _batch(self, b: int) -> _Batch:
        if b > self._most:
            self._allocate(b)
        if b not in self._batches:
            outputs, residuals, zeros, masks = (
                [flat[: b * n].reshape(n, b).T for flat, n in zip(some, self._widths, strict=False)]
                for some in (self._outputs, self._residuals, self._zeros, self._masks)
            )
            scratch = [mask.view(self._dtype) for mask in masks]
            self._batches[b] = _Batch(outputs, residuals, zeros, masks, scratch, self._ones[:b])
        return self._batches[b]

    def forward(
        self, layers: Layers, rows: NDArray[Any], labels: NDArray[Any], weights: NDArray[Any] | None = None
    ) -> None:
        """Fill the activations and the last residual, the gradient of the summed loss by the outputs ``[b, C]``.

        Each row's loss counts ``weights [b]`` times; once where None. Rows behind those that have ``labels [b]``
        only fill up the batch: their residuals are zeros.
        """
        a, memory = rows, self._batch(len(rows))
        for k, (weight, bias) in enumerate(layers):
            z = memory.outputs[k]
            np.matmul(a, weight.T, z)
            self._blas.ger(1.0, memory.ones, bias, 1, 1, z, 1, 1, 1)
            if k < len(memory.zeros):
                a = np.maximum(z, memory.zeros[k], out=z)  # with a scalar zero numpy is three times slower
        last = memory.residuals[-1]
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
            a, below, mask = memory.outputs[k - 1], memory.residuals[k - 1], memory.masks[k - 1]
            np.matmul(memory.residuals[k], layers[k][0], below)
            if contrast is not None and k == len(layers) - 1:
                term, v = contrast
                add_gradient(a[: len(v)], v, term.weight, term.temperature, below[: len(v)])
            # a >= 0 after ReLU, so the sign of -a as an integer is all ones where a > 0: a mask without booleans,
            # which numpy would convert to floats at twice the price
            np.negative(a.view(self._bits), mask)
            np.right_shift(mask, self._sign_bit, mask)
            bits = below.view(self._bits)
            np.bitwise_and(bits, mask, bits)

    def step(self, rows: NDArray[Any], targets: Layers, scale: float, keep: tuple[float, float]) -> None:
        """``target <- keep * target + scale * gradient`` of the summed loss; ``keep`` of weights, and of biases."""
        b = len(rows)
        memory = self._batch(b)
        for k in range(len(targets) - 1, -1, -1):
            weight, bias = targets[k]
            if not b:
                np.multiply(weight, keep[0], weight)
                np.multiply(bias, keep[1], bias)
                continue
            residuals = memory.residuals[k]
            a, transposed = (memory.outputs[k - 1], 1) if k else (rows.T, 0)
            self._blas.gemm(scale, a, residuals, keep[0], weight.T, transposed, 0, 1)
            self._blas.gemv(scale, residuals, memory.ones, keep[1], bias, 0, 1, 0, 1, 1, 1)

    def traces(self, rows: NDArray[Any]) -> list[Traced]:
        """What each layer received of the batch's ``rows``, and its residuals; the kernel's own memory."""
        memory = self._batch(len(rows))
        return [Traced(a, d) for a, d in zip([rows, *memory.outputs[:-1]], memory.residuals, strict=True)]

    def row_squares(self, of_rows: NDArray[Any]) -> NDArray[Any]:
        """The squared 2-norm of each row's gradient, where rows and the 1 that biases have come to ``of_rows [b]``."""
        memory = self._batch(len(of_rows))
        total: NDArray[Any] | None = None
        received = of_rows
        for a, d, scratch in zip(memory.outputs, memory.residuals, memory.scratch, strict=False):
            of_layer = self._column_squares(d, scratch)
            np.multiply(of_layer, received, of_layer)
            total = of_layer if total is None else np.add(total, of_layer, total)
            received = self._column_squares(a, scratch)
            np.add(received, 1, received)
        last = memory.residuals[-1]
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
        memory = self._batch(len(rows))
        for residuals in memory.residuals:
            np.multiply(residuals.T, factors, residuals.T)
        if np.count_nonzero(factors) < len(factors):  # zero times what is not finite is not zero
            lost = np.flatnonzero(factors == 0)
            for a, residuals in self.traces(rows):
                a[lost] = 0
                residuals[lost] = 0
