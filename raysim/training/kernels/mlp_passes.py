"""Forward and backward of a multi-layer perceptron over one batch, and the step that follows, as machine code."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raysim.training.base import ContrastTerm, Vector
from raysim.training.kernels.clipped import Traced
from raysim.training.kernels.contrast import add_gradient
from raysim.training.kernels.descent import BLAS, softmax_residual
from raysim.training.losses import LOG_LOSS, residual
from raysim.training.machine_code import blas, function, location
from raysim.training.products import cut, has_small_products


class _Layer(NamedTuple):
    """A layer's memory for a batch of ``b`` rows: views ``[b, width]``, whose columns are contiguous."""

    received: NDArray[Any]
    outputs: NDArray[Any]
    residuals: NDArray[Any]


class _Batch(NamedTuple):
    layers: list[_Layer]
    table: NDArray[np.uint64]
    """See :mod:`raysim.training.loops.dense`."""
    at: int
    """The address of ``table``."""


class Passes:
    """Forward and backward over one batch, in memory that all batches of a call use in turn.

    ``widths``: ``(F, hidden..., C)``. Rows are the last axis in memory: the left factor of each product is then a
    layer's matrix without a transposition, which OpenBLAS computes up to twice as fast with AVX-512.
    """

    def __init__(self, widths: Sequence[int], dtype: np.dtype[Any], loss: str) -> None:
        self._loss, self._widths, self._dtype = loss, tuple(widths), dtype
        self._size = sum((a + 1) * b for a, b in pairwise(widths))
        self._sums = BLAS[dtype].gemv
        self._blas = blas("gemm", dtype)
        loops = {"forward": "iaaaa", "backward": "iaaaan", "returned": "iaaan", "masked": "iaaan", "step": "iaaaaaa"}
        self._forward, self._backward, self._returned, self._masked, self._step = (
            function("dense", name, given, dtype) for name, given in loops.items()
        )
        self._ones = np.ones(max(widths), dtype)
        self._factors = np.array([1, 0, 1, 1, 1], dtype)
        self._at_factors = self._factors.ctypes.data
        self._kept: tuple[float, tuple[float, float]] | None = None  # which of the factors are there
        self._rows: NDArray[Any] | None
        self._now: _Batch | None
        self._vectors: tuple[Vector, Vector | None] | None = None  # addresses keep nothing
        self._allocate(0)

    def _allocate(self, batch: int) -> None:
        """Allocate memory for batches of up to ``batch`` rows, in place of the one that there is."""
        self._most, self._rows, self._now = batch, None, None
        self._batches: dict[int, _Batch] = {}
        self._activations = self._residuals = self._room = np.empty(0, self._dtype)  # before there is more
        self._activations, self._residuals = (np.empty(batch * sum(self._widths), self._dtype) for _ in range(2))
        self._room = np.empty(batch * max(self._widths), self._dtype)
        memory = self._activations, self._residuals, self._room
        self._at_activations, self._at_residuals, self._at_room = (part.ctypes.data for part in memory)

    def give_back(self) -> None:
        """Give the memory for batches back."""
        self._allocate(0)

    def end(self) -> None:
        """Let go of the rows and parameters that were given."""
        self._rows = self._vectors = self._now = None

    def _batch_now(self) -> _Batch:
        """The batch of the last :meth:`outputs`. Raises ``ValueError`` where there is none."""
        if self._now is None:
            raise ValueError("there is no batch before its outputs")
        return self._now

    def _batch(self, b: int) -> _Batch:
        if b > self._most:
            self._allocate(b)
        if b not in self._batches:
            self._batches[b] = self._views(b)
        return self._batches[b]

    def _views(self, b: int) -> _Batch:
        widths, layers, numbers, weight = self._widths, [], [], 0
        starts = [b * width for width in accumulate(widths, initial=0)]
        for k, (inputs, outputs) in enumerate(pairwise(widths)):
            begin, middle, end = starts[k : k + 3]
            layers.append(
                _Layer(
                    self._activations[begin:middle].reshape(inputs, b).T,
                    self._activations[middle:end].reshape(outputs, b).T,
                    self._residuals[middle:end].reshape(outputs, b).T,
                )
            )
            pieces, back = cut(outputs, inputs, b)[0], cut(inputs, outputs, b)[0]
            numbers += [inputs, outputs, pieces, back, weight, begin, middle]
            weight += (inputs + 1) * outputs
        head = [len(layers), b, self._dtype.itemsize, self._blas, has_small_products()]
        table = np.array([*head, *numbers, *[0] * 8], np.uint64)
        return _Batch(layers, table, table.ctypes.data)

    def begin(self, theta: Vector, target: Vector | None = None) -> None:
        """Go on with the parameters ``theta [P]``, whose steps change ``target [P]``; None: there are no steps."""
        if target is not None and not target.flags.writeable:
            raise ValueError("steps change the target, which must not be read-only")
        self._at_theta = location(theta, (self._size,), self._dtype)
        self._at_target = 0 if target is None else location(target, (self._size,), self._dtype)
        self._vectors = theta, target

    def outputs(self, rows: NDArray[Any], low: int, high: int) -> NDArray[Any]:
        """Fill the activations of the batch ``rows[low:high]``; returns the last layer's ``[b, C]``."""
        if self._vectors is None or not 0 <= low <= high <= len(rows):
            raise ValueError(f"rows {low} to {high} of {len(rows)}, after parameters are given")
        memory = self._now = self._batch(high - low)
        if rows is not self._rows:
            self._rows, self._at_rows = rows, location(rows, (len(rows), self._widths[0]), self._dtype)
        self._at_batch = self._at_rows + low * rows.strides[0]
        self._forward(memory.at, self._at_factors, self._at_theta, self._at_batch, self._at_activations)
        return memory.layers[-1].outputs

    def forward(
        self, rows: NDArray[Any], low: int, high: int, labels: NDArray[Any], weights: NDArray[Any] | None = None
    ) -> None:
        """Fill the activations and the last residual, the gradient of the summed loss by the outputs ``[b, C]``.

        The batch is ``rows[low:high]``. Each row's loss counts ``weights [b]`` times; once where None. Rows behind
        those that have ``labels [b]`` only fill up the batch: their residuals are zeros.
        """
        z, last = self.outputs(rows, low, high), self._batch_now().layers[-1].residuals
        if len(labels) < high - low:
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

    def backward(self, contrast: tuple[ContrastTerm, NDArray[Any]] | None) -> None:
        """Fill the residuals of all layers below the last.

        ``contrast``: a further term of the loss, and its rows' directions, ``[b, width]`` or fewer rows.
        """
        memory, top = self._batch_now(), len(self._widths) - 2
        given = memory.at, self._at_factors
        if contrast is not None and top:
            self._returned(*given, self._at_theta, self._at_residuals, top)
            term, v = contrast
            received, residuals = memory.layers[top].received[: len(v)], memory.layers[top - 1].residuals[: len(v)]
            add_gradient(received, v, term.weight, term.temperature, residuals)
            self._masked(*given, self._at_activations, self._at_residuals, top)
            top -= 1
        self._backward(*given, self._at_theta, self._at_activations, self._at_residuals, top)

    def step(self, scale: float, keep: tuple[float, float]) -> None:
        """``target <- keep * target + scale * gradient`` of the summed loss; ``keep`` of weights, and of biases."""
        if not self._at_target:
            raise ValueError("there is no target that a step may change")
        if self._kept != (scale, keep):
            self._kept = scale, keep
            self._factors[2:] = scale, *keep
        self._step(
            self._batch_now().at,
            self._at_factors,
            self._at_activations,
            self._at_residuals,
            self._at_batch,
            self._at_target,
            self._at_room,
        )

    def traces(self, rows: NDArray[Any]) -> list[Traced]:
        """What each layer received of the batch's ``rows``, and its residuals; the kernel's own memory."""
        first, *others = self._batch(len(rows)).layers
        return [Traced(rows, first.residuals), *(Traced(layer.received, layer.residuals) for layer in others)]

    def row_squares(self, of_rows: NDArray[Any]) -> NDArray[Any]:
        """The squared 2-norm of each row's gradient, where rows and the 1 that biases have come to ``of_rows [b]``."""
        memory = self._batch(len(of_rows))
        total: NDArray[Any] | None = None
        received = of_rows
        for layer in memory.layers[:-1]:
            of_layer = self._column_squares(layer.residuals)
            np.multiply(of_layer, received, of_layer)
            total = of_layer if total is None else np.add(total, of_layer, total)
            received = self._column_squares(layer.outputs)
            np.add(received, 1, received)
        last = memory.layers[-1].residuals
        squares: NDArray[Any] = np.vecdot(last, last) * received
        if total is not None:
            np.add(total, squares, squares)
        return squares

    def _column_squares(self, columns: NDArray[Any]) -> NDArray[Any]:
        """The squared 2-norm of each row of ``columns [b, width]``, whose columns are contiguous in memory."""
        b, width = columns.shape
        scratch = self._room[: columns.size].reshape(width, b).T
        np.multiply(columns, columns, scratch)
        squares: NDArray[Any] = self._sums(1.0, scratch, self._ones[:width])
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
