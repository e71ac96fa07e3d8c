"""BLAS's product of matrices, called from loops."""

from __future__ import annotations

import numpy as np

from raysim.training.loops.writing import at, call, called

_1, _2, _3, _4, _5, _6, _7, _8 = (np.uint64(k) for k in range(1, 9))
NO, YES = np.uint64(ord("N")), np.uint64(ord("T"))
"""Whether a factor is transposed."""


@called
def describe(t, n, turn_a, turn_b, shape, apart):  # type: ignore[no-untyped-def]
    """Store in ``t``, from ``n`` on, the eight numbers that :func:`product` gives BLAS.

    BLAS takes matrices by columns, numbers by address, and whole ones of 32 or 64 bits: here they are of 64, whose low
    half is first. ``shape``: rows and columns of the product, and the length of its sums; ``apart``: numbers from
    column to column of each factor and of the product.
    """
    t[n], t[n + _1], t[n + _2], t[n + _3], t[n + _4] = turn_a, turn_b, shape[0], shape[1], shape[2]
    t[n + _5], t[n + _6], t[n + _7] = apart[0], apart[1], apart[2]


@called
def product(gemm, t, n, factor, a, b, kept, c):  # type: ignore[no-untyped-def]
    """``c = factor a b + kept c``, all by address; ``gemm`` is BLAS's routine."""
    k = at(t) + n * _8
    shapes = k, k + _8, k + _2 * _8, k + _3 * _8, k + _4 * _8
    call(gemm, (*shapes, factor, a, k + _5 * _8, b, k + _6 * _8, kept, c, k + _7 * _8))


@called
def multiply(gemm, t, n, turns, shape, factor, a, b, kept, c, apart):  # type: ignore[no-untyped-def]
    """:func:`product` of matrices that are described first, in ``t`` from ``n`` on."""
    describe(t, n, turns[0], turns[1], shape, apart)
    product(gemm, t, n, factor, a, b, kept, c)
