"""Products of a layer's matrix with a batch, cut into pieces where that is faster."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core import blas

SMALL = 10**6
"""Up to this many multiplications OpenBLAS's code for AVX-512 does not copy the factors of a product first.

A batch's product often needs a little more; cut into pieces it takes two thirds of the time.
"""
LEAST_PIECE = 16
"""The least rows of a layer's matrix in a piece."""


@lru_cache
def has_small_products() -> bool:
    """Whether products of up to ``SMALL`` multiplications are faster than others: with the code for AVX-512."""
    return blas.code() in blas.OF_AVX512


@lru_cache(maxsize=1024)
def cut(rows: int, width: int, batch: int) -> tuple[int, int, int]:
    """The shape ``[p, rows / p, batch]`` of the product of ``[rows, width]`` with a batch, in ``p`` equal pieces."""
    most = rows // LEAST_PIECE if has_small_products() else 1
    small = (p for p in range(1, most + 1) if rows % p == 0 and rows // p * width * batch <= SMALL)
    p = next(small, 1)
    return p, rows // p, batch


def multiply(matrix: NDArray[Any], columns: NDArray[Any], out: NDArray[Any]) -> None:
    """Store ``matrix [m, k] @ columns [k, b]`` in ``out [m, b]``; ``matrix`` and ``out`` are contiguous."""
    (rows, width), batch = matrix.shape, columns.shape[1]
    shape = cut(rows, width, batch)
    np.matmul(matrix.reshape(*shape[:2], width), columns, out=out.reshape(shape))
