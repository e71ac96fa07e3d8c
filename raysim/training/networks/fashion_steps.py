"""The steps of :class:`raysim.training.networks.images.FashionCnn` on a CPU: everything is a product of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.linalg import get_blas_funcs

from raysim.training.networks.pooled import Stage, bordered
from raysim.training.networks.written import Array
from raysim.training.products import multiply

SIDE, MAPS = 28, (8, 16, 32)


class FashionSteps:
    """The network's outputs and derivatives for ``b`` rows at a time, in memory that all steps use.

    Rows are the last axis in memory, also of what the dense layers compute. ``dense``: the width of the hidden one.
    """

    def __init__(self, b: int, padding: bool, dense: int, dtype: Any) -> None:
        border = int(padding)
        images, self._inside = bordered((SIDE, 1, SIDE, b), border, dtype)
        self._stages: list[Stage] = []
        for maps in MAPS:
            self._stages.append(Stage(images, maps, border, padded=maps != MAPS[-1]))
            images = self._stages[-1].following
        self._flat_shape = images.transpose(1, 0, 2, 3).shape
        self._received = np.empty((images.size // b, b), dtype)
        self._by_received = np.empty_like(self._received)
        self._hidden, self._by_hidden = np.empty((dense, b), dtype), np.empty((dense, b), dtype)
        self._zeros, self._ones = np.zeros((dense, b), dtype), np.ones(b, dtype)
        (self._add_bias,) = get_blas_funcs(("ger",), dtype=dtype)

    def forward(self, x: Array, parameters: Sequence[Array]) -> Array:
        """The outputs ``[b, C]`` of rows ``x [b, 784]``."""
        self._inside[:, 0] = x.T.reshape(SIDE, SIDE, -1)
        for stage, weight, bias in zip(self._stages, parameters[:6:2], parameters[1:6:2], strict=True):
            stage.forward(weight, bias)
        self._received.reshape(self._flat_shape)[:] = self._stages[-1].outputs.transpose(1, 0, 2, 3)
        first, first_bias, last, last_bias = parameters[6:]
        multiply(first, self._received, out=self._hidden)
        self._add_bias(1.0, self._ones, first_bias, 1, 1, self._hidden.T, 1, 1, 1)
        np.maximum(self._hidden, self._zeros, out=self._hidden)  # with a scalar zero numpy is twice as slow
        outputs: Array = np.matmul(self._hidden.T, last.T)
        outputs += last_bias
        return outputs

    def backward(self, by_output: Array, parameters: Sequence[Array], into: Sequence[Array]) -> None:
        """Store the gradient by each parameter, once after each :meth:`forward`."""
        *of_stages, by_first, by_first_bias, by_last, by_last_bias = into
        first, _, last, _ = parameters[6:]
        np.matmul(by_output.T, self._hidden.T, out=by_last)
        np.matmul(self._ones, by_output, out=by_last_bias)
        np.matmul(last.T, by_output.T, out=self._by_hidden)
        np.multiply(self._by_hidden, self._hidden > 0, out=self._by_hidden)
        multiply(self._by_hidden, np.ascontiguousarray(self._received.T), out=by_first)
        np.matmul(self._by_hidden, self._ones, out=by_first_bias)
        np.matmul(first.T, self._by_hidden, out=self._by_received)
        slope = self._by_received.reshape(self._flat_shape).transpose(1, 0, 2, 3)
        for k in (2, 1, 0):
            self._stages[k].backward(slope, of_stages[2 * k], of_stages[2 * k + 1], needed=k > 0)
            slope = self._stages[k].by_images
