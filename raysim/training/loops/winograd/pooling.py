"""Batch norm with max pooling of 2 x 2 behind it, and the sums that batch norm's derivative needs.

The norm of images ``y [n, H, W, C]`` is ``factor y + shift``; ``of_norm`` has each channel's factor, then each one's
shift.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raysim.training.loops.writing import called, inlined

_real, _u = np.float64, np.uint64  # without a sign, see winograd.inputs
_TWO = _u(2)


@called
def largest(factor, shift, y0, y1, y2, y3):  # type: ignore[no-untyped-def]
    """Where the largest norm of 2 x 2 is, of equal ones the first: in the second column of each line, and below?"""
    v0, v1, v2, v3 = factor * y0 + shift, factor * y1 + shift, factor * y2 + shift, factor * y3 + shift
    second, fourth = v1 > v0, v3 > v2
    return second, fourth, (v3 if fourth else v2) > (v1 if second else v0)


@inlined
def _best(y, q, below, channels, factor, shift):  # type: ignore[no-untyped-def]
    """The ``y`` of the largest norm of the 2 x 2 at ``q``, whose lines are ``below`` each other."""
    y0, y1, y2, y3 = y[q], y[q + channels], y[q + below], y[q + below + channels]
    second, fourth, lower = largest(factor, shift, y0, y1, y2, y3)
    return (y3 if fourth else y2) if lower else (y1 if second else y0)


def pool(wide: int, channels: int) -> Any:
    """``(y, of_norm, pooled, rows)``: store the largest norm of each 2 x 2 of so many rows of these."""
    C, line, columns = _u(channels), _u(wide * channels), _u(wide // 2)

    def pool(y, of_norm, pooled, rows):  # type: ignore[no-untyped-def]
        to = _u(0)
        for i in range(rows):
            for j in range(columns):
                start = _TWO * (i * line + j * C)
                for c in range(C):
                    f, s = of_norm[c], of_norm[C + c]
                    pooled[to + c] = f * _best(y, start + c, line, C, f, s) + s
                to += C

    return pool


def by_pool(wide: int, channels: int) -> Any:
    """``(by_pooled, y, of_norm, sums, rows)``: each channel's sum of the derivatives by the norm, in float64.

    Behind these are the sums of their products with ``y``. Sums are added.
    """
    C, line, columns = _u(channels), _u(wide * channels), _u(wide // 2)

    def by_pool(by_pooled, y, of_norm, sums, rows):  # type: ignore[no-untyped-def]
        at = _u(0)
        for i in range(rows):
            for j in range(columns):
                start = _TWO * (i * line + j * C)
                for c in range(C):
                    g = _real(by_pooled[at + c])
                    sums[c] += g
                    sums[C + c] += g * _real(_best(y, start + c, line, C, of_norm[c], of_norm[C + c]))
                at += C

    return by_pool
