"""Batch norm's loops over images, alone or with max pooling of 2 x 2, compiled for this processor.

Images are ``[n, H, W, C]`` with channels last, as flat arrays. Their norm is ``factor y + shift``, with a channel's
numbers. Sums are in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from raysim.training.networks.compiled import compiled
from raysim.training.networks.written import Array


class Norms(NamedTuple):
    """The loops for images of one width and number of channels.

    ``of_norm [2 C]``: each channel's factor, then each one's shift.
    """

    pool: Callable[[Array, Array, Array], None]
    """``(y, of_norm, pooled)``: store the largest norm of each 2 x 2."""
    by_pool: Callable[[Array, Array, Array, Array], None]
    """``(by_pooled, y, of_norm, sums)``: the same of the gradient by the pooled norms."""


@lru_cache
def norms(wide: int, channels: int) -> Norms:
    """For images of ``wide`` columns and ``channels``."""
    u, real = np.uint64, np.float64
    C, line, columns, two = u(channels), u(wide * channels), u(wide // 2), u(2)

    def pool(y, of_norm, pooled):  # type: ignore[no-untyped-def]
        to = u(0)
        for i in range(u(len(y)) // (two * line)):
            for j in range(columns):
                start = two * (i * line + j * C)
                for c in range(C):
                    f, s, q = of_norm[c], of_norm[C + c], start + c
                    v0, v1 = f * y[q] + s, f * y[q + C] + s
                    v2, v3 = f * y[q + line] + s, f * y[q + line + C] + s
                    upper, lower = v1 if v1 > v0 else v0, v3 if v3 > v2 else v2
                    pooled[to + c] = lower if lower > upper else upper
                to += C

    def by_pool(by_pooled, y, of_norm, sums):  # type: ignore[no-untyped-def]
        at = u(0)
        for i in range(u(len(y)) // (two * line)):
            for j in range(columns):
                start = two * (i * line + j * C)
                for c in range(C):
                    f, s, q = of_norm[c], of_norm[C + c], start + c
                    y0, y1, y2, y3 = y[q], y[q + C], y[q + line], y[q + line + C]
                    v0, v1, v2, v3 = f * y0 + s, f * y1 + s, f * y2 + s, f * y3 + s
                    upper, lower = v1 if v1 > v0 else v0, v3 if v3 > v2 else v2
                    of_upper, of_lower = y1 if v1 > v0 else y0, y3 if v3 > v2 else y2
                    g = real(by_pooled[at + c])
                    sums[c] += g
                    sums[C + c] += g * real(of_lower if lower > upper else of_upper)
                at += C

    return Norms(compiled(pool), compiled(by_pool))
