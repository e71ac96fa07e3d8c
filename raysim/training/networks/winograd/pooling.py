"""Batch norm with max pooling of 2 x 2 behind it, and the sums that batch norm's derivative needs.

The norm of images ``y [n, H, W, C]`` is ``factor y + shift``; ``of_norm`` has each channel's factor, then each one's
shift.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from raysim.training.networks.compiled import compiled

_real, _u = np.float64, np.uint64  # without a sign, see winograd.inputs
_TWO = _u(2)


@lru_cache
def pool(wide: int, channels: int) -> Any:
    """``(y, of_norm, pooled)``: store the largest norm of each 2 x 2."""
    C, line, columns = _u(channels), _u(wide * channels), _u(wide // 2)

    def pool(y, of_norm, pooled):  # type: ignore[no-untyped-def]
        to = _u(0)
        for i in range(_u(len(y)) // (_TWO * line)):
            for j in range(columns):
                start = _TWO * (i * line + j * C)
                for c in range(C):
                    f, s, q = of_norm[c], of_norm[C + c], start + c
                    v0, v1 = f * y[q] + s, f * y[q + C] + s
                    v2, v3 = f * y[q + line] + s, f * y[q + line + C] + s
                    upper, lower = v1 if v1 > v0 else v0, v3 if v3 > v2 else v2
                    pooled[to + c] = lower if lower > upper else upper
                to += C

    return compiled(pool)


@lru_cache
def by_pool(wide: int, channels: int) -> Any:
    """``(by_pooled, y, of_norm, sums)``: each channel's sum of the derivatives by the norm, in float64.

    Behind these are the sums of their products with ``y``. Sums are added.
    """
    C, line, columns = _u(channels), _u(wide * channels), _u(wide // 2)

    def by_pool(by_pooled, y, of_norm, sums):  # type: ignore[no-untyped-def]
        at = _u(0)
        for i in range(_u(len(y)) // (_TWO * line)):
            for j in range(columns):
                start = _TWO * (i * line + j * C)
                for c in range(C):
                    f, s, q = of_norm[c], of_norm[C + c], start + c
                    y0, y1, y2, y3 = y[q], y[q + C], y[q + line], y[q + line + C]
                    v0, v1, v2, v3 = f * y0 + s, f * y1 + s, f * y2 + s, f * y3 + s
                    upper, lower = v1 if v1 > v0 else v0, v3 if v3 > v2 else v2
                    of_upper, of_lower = y1 if v1 > v0 else y0, y3 if v3 > v2 else y2
                    g = _real(by_pooled[at + c])
                    sums[c] += g
                    sums[C + c] += g * _real(of_lower if lower > upper else of_upper)
                at += C

    return compiled(by_pool)
