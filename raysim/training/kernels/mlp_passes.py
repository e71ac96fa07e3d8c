"""Forward and backward passes of a multi-layer perceptron over one batch, and the optimiser's step, in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raysim.training.base import ContrastTerm
from raysim.training.kernels.clipped import RowFactors, Traced
from raysim.training.kernels.contrast import add_gradient
from raysim.training.kernels.descent import BLAS, softmax_residual
from raysim.training.losses import LOG_LOSS, residual
from raysim.training.private import PrivateSteps

Layers = list[tuple[NDArray[Any], NDArray[Any]]]  # (weight [out, in], bias [out]) for each layer, the first one first


class _Layer(NamedTuple):
    """Memory for one layer in a batch of ``b`` rows: views ``[b, width]`` with contiguous columns."""

    received: NDArray[Any]
    outputs: NDArray[Any]
    residuals: NDArray[Any]
    scratch: NDArray[Any]


class Passes:
    """Forward and backward passes over one batch. All batches use the same memory, one after another.

    ``widths`` is ``(F, hidden..., C)``, with the number ``C`` of outputs. Rows are the last axis in memory: with
    AVX-512, OpenBLAS then computes products up to twice as fast.
    """

    def __init__(self, widths: Sequence[int], dtype: np.dtype[Any], loss: str) -> None:
        self._loss, self._widths, self._dtype = loss, tuple(widths), dtype
        self._blas = BLAS[dtype]
        self._allocate(0)

    def _allocate(self, batch: int) -> None:
        self._most, self._batches = batch, dict[int, list[_Layer]]()
        self._activations, self._residuals = (np.empty(batch * sum(self._widths), self._dtype) for _ in range(2))
        self._scratch = np.empty(batch * max(self._widths), self._dtype)
        self._zeros = np.zeros((max(self._widths), batch), self._dtype)
        self._ones = np.ones(max(batch, *self._widths), self._dtype)

    def _batch(self, b: int) -> list[_Layer]:
        if b > self._most:
            self._allocate(b)
        if b not in self._batches:
            self._batches[b] = self._views(b)
        return self._batches[b]

    def _views(self, b: int) -> list[_Layer]:
        cuts = pairwise(accumulate((b * width for width in self._widths), initial=0))
        parts = [(slice(*cut), (width, b)) for cut, width in zip(cuts, self._widths, strict=True)]
        activations, residuals = (
            [memory[part].reshape(shape).T for part, shape in parts] for memory in (self._activations, self._residuals)
        )
        scratch = [self._scratch[: b * width].reshape(width, b).T for width in self._widths]
        return [_Layer(*views) for views in zip(activations, activations[1:], residuals[1:], scratch[1:], strict=False)]

    def outputs(self, layers: Layers, rows: NDArray[Any]) -> NDArray[Any]:
        """Compute and store the activations of the batch ``rows [b, F]``; return the outputs ``[b, C]``."""
        memory, ones = self._batch(len(rows)), self._ones[: len(rows)]
        np.copyto(memory[0].received, rows)
        for k, ((weight, bias), layer) in enumerate(zip(layers, memory, strict=True)):
            columns = layer.outputs.T
            np.matmul(weight, layer.received.T, columns)
            self._blas.ger(1.0, ones, bias, 1, 1, layer.outputs, 1, 1, 1)
            if k + 1 < len(layers):
                # with a scalar zero numpy takes three times as long
                np.maximum(columns, self._zeros[: len(columns), : len(rows)], out=columns)
        return memory[-1].outputs

    def forward(
        self, layers: Layers, rows: NDArray[Any], labels: NDArray[Any], weights: NDArray[Any] | None = None
    ) -> None:
        """Compute and store the activations of a batch, and the residuals of the last layer.

        The residuals are the gradient of the summed loss with respect to the outputs ``[b, C]``. ``labels [m]`` are
        those of the first ``m`` rows; the other rows are padding, and get the residual 0. Each row's loss is multiplied
        by its ``weights [m]`` (None: by 1).
        """
        z, last = self.outputs(layers, rows), self._batch(len(rows))[-1].residuals
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
        """Compute the residuals of all layers below the last, for a batch of ``b`` rows.

        A layer's residuals are the gradient of the loss with respect to the layer's outputs before the activation.
        ``contrast`` is a contrastive term with its directions ``[m, width]`` for the first ``m`` rows, or None.
        """
        memory = self._batch(b)
        for k in range(len(layers) - 1, 0, -1):
            layer, below = memory[k], memory[k - 1].residuals
            np.matmul(layers[k][0].T, layer.residuals.T, below.T)
            if contrast is not None and k == len(layers) - 1:
                term, v = contrast
                add_gradient(layer.received[: len(v)], v, term.weight, term.temperature, below[: len(v)])
            np.multiply(below.T, layer.received.T > 0, below.T)

    def step(self, rows: NDArray[Any], targets: Layers, scale: float, keep: tuple[float, float]) -> None:
        """Update each array of ``targets`` to ``keep * target + scale * gradient``.

        ``keep`` has the factors for weights and for biases.
        """
        memory, ones = self._batch(len(rows)), self._ones[: len(rows)]
        for k in range(len(targets) - 1, -1, -1):
            (weight, bias), (received, _, residuals, _) = targets[k], memory[k]
            if k:
                self._blas.gemm(scale, received, residuals, keep[0], weight.T, 1, 0, 1)
            else:
                self._blas.gemm(scale, rows.T, residuals, keep[0], weight.T, 0, 0, 1)
            self._blas.gemv(scale, residuals, ones, keep[1], bias, 0, 1, 0, 1, 1, 1)

    def traces(self, rows: NDArray[Any]) -> list[Traced]:
        """Return each layer's inputs and residuals for the batch's ``rows``, as views of the kernel's memory."""
        first, *others = self._batch(len(rows))
        return [Traced(rows, first.residuals), *(Traced(layer.received, layer.residuals) for layer in others)]

    def row_squares(self, of_rows: NDArray[Any]) -> NDArray[Any]:
        """Return the squared 2-norm of each row's gradient.

        ``of_rows [b]`` is the squared norm of the features of each row of the batch, plus 1 for the bias.
        """
        *hidden, last = self._batch(len(of_rows))
        total: NDArray[Any] | None = None
        received = of_rows
        for layer in hidden:
            of_layer = self._column_squares(layer.residuals, layer.scratch)
            np.multiply(of_layer, received, of_layer)
            total = of_layer if total is None else np.add(total, of_layer, total)
            received = self._column_squares(layer.outputs, layer.scratch)
            np.add(received, 1, received)
        squares: NDArray[Any] = np.vecdot(last.residuals, last.residuals) * received
        if total is not None:
            np.add(total, squares, squares)
        return squares

    def _column_squares(self, columns: NDArray[Any], scratch: NDArray[Any]) -> NDArray[Any]:
        np.multiply(columns, columns, scratch)
        squares: NDArray[Any] = self._blas.gemv(1.0, scratch, self._ones[: scratch.shape[1]])
        return squares

    def scale(self, rows: NDArray[Any], factors: NDArray[Any]) -> None:
        """Multiply the gradients of the batch's ``rows`` by ``factors [b]``. With the factor 0 a row contributes
        nothing, even if its gradient is not finite."""
        for layer in self._batch(len(rows)):
            np.multiply(layer.residuals.T, factors, layer.residuals.T)
        if np.count_nonzero(factors) < len(factors):  # 0 times infinity or NaN is not 0
            lost = np.flatnonzero(factors == 0)
            for a, residuals in self.traces(rows):
                a[lost] = 0
                residuals[lost] = 0


PIECE = 16
"""Batches from Poisson sampling are padded with zeros to a multiple of this number of rows; products of other sizes
take up to 50 % longer."""


def filled(rows: int) -> int:
    """Return to how many rows a batch of ``rows`` rows is padded."""
    return -(-rows // PIECE) * PIECE


class MlpClip:
    """Clips the gradients of a multi-layer perceptron in one hospital's steps of DP-SGD.

    The hospital's rows are ``X [n, F]``. ``buffer`` is memory for a padded batch.
    """

    def __init__(self, private: PrivateSteps, X: NDArray[Any], buffer: NDArray[Any], passes: Passes) -> None:
        self._factors, self._X, self._buffer, self._passes = RowFactors(private, X.dtype), X, buffer, passes
        self._squares = np.vecdot(X, X) + 1
        # Entries beyond a batch's rows may keep old values, which are multiplied by 0.
        self._of_batch = np.ones(len(buffer), X.dtype)

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the hospital's ``rows [b]`` as a batch that is padded with zeros, ``[filled(b), F]``."""
        batch = self._buffer[: filled(len(rows))]
        # mode="clip" only because "raise" makes numpy copy `out` first; rows are never out of range
        self._X.take(rows, 0, batch[: len(rows)], "clip")
        batch[len(rows) :] = 0
        return batch

    def shorten(self, batch: NDArray[Any], rows: NDArray[np.int64]) -> None:
        """Clip the gradients of the hospital's ``rows [b]`` by scaling residuals; ``batch`` is their :meth:`gather`
        result.
        """
        traces = self._passes.traces(batch) if self._factors.need_traces else []
        self._factors.plant(traces, rows)
        of_batch = self._of_batch[: len(batch)]
        self._squares.take(rows, 0, of_batch[: len(rows)], "clip")
        self._passes.scale(batch, self._factors(self._passes.row_squares(of_batch), traces, rows))
