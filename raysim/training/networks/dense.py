"""Fully connected layers whose products on a CPU are numpy's.

torch takes the products of small batches from MKL, which on AMD processors computes with AVX2 alone; OpenBLAS's code
for AVX-512 (:mod:`raysim.core.blas`) takes half the time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raysim.training.networks.numpy_layers import NumpyLayer
from raysim.training.networks.once import differentiable_once


class Dense(NumpyLayer, nn.Linear):
    """``nn.Linear``; in a visit's loop on a CPU (:func:`by_numpy`) with the products of :class:`Product`."""

    def forward(self, x: Tensor) -> Tensor:
        """``x [b, in]`` times the matrix, plus the bias: ``[b, out]``. Other ``x`` are torch's to compute or refuse."""
        if self.computes_by_numpy() and self._for_product(x):
            product: Tensor = Product.apply(x, self.weight)  # type: ignore[no-untyped-call]
            return product + self.bias
        return super().forward(x)

    def _for_product(self, x: Tensor) -> bool:
        return (
            x.dtype == self.weight.dtype in (torch.float32, torch.float64)
            and x.dim() == 2
            and x.shape[1] == self.in_features
            and self.bias is not None
        )


class Product(torch.autograd.Function):
    """``x [b, in] @ matrix [out, in].T``, on a CPU. Differentiable once; no transform of ``torch.func`` knows it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor) -> Tensor:
        """See the class."""
        ctx.save_for_backward(x, matrix)
        # The batch's rows last in memory: the matrix is then the left factor, without a transposition.
        columns = np.matmul(matrix.detach().numpy(), x.detach().numpy().T)
        return torch.from_numpy(columns).t()

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor]:
        """The gradients by ``x``, if needed, and by ``matrix``."""
        x, matrix = (tensor.detach().numpy() for tensor in ctx.saved_tensors)
        by_output = gradients[0].numpy()
        by_x = None
        if ctx.needs_input_grad[0]:
            # In the memory order of x: elementwise operations on both are slow where orders differ.
            columns = x.flags.f_contiguous and not x.flags.c_contiguous
            product = np.matmul(matrix.T, by_output.T).T if columns else np.matmul(by_output, matrix)
            by_x = torch.from_numpy(product)
        return by_x, torch.from_numpy(np.matmul(by_output.T, x))
