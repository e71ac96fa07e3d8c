"""The derivatives by Winograd's tiles of outputs, from those by batch norm, alone or with max pooling of 2 x 2.

What stands between them and the tiles, batch norm's derivative and ReLU's, is taken on the way, so that no images are
written. Arrays are those of :mod:`raysim.training.networks.winograd`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from raysim.training.networks.compiled import compiled, inlined
from raysim.training.networks.winograd import APART, TILE
from raysim.training.networks.written import Array

_F, _u = np.float32, np.uint64
_2, _4, _8 = _F(2), _F(4), _F(8)


class Gradients(NamedTuple):
    """The loops for outputs ``y`` of one size and number of channels, that are ``max(A' m A + bias, 0)``."""

    by_outputs: Callable[[Array, Array, Array, Array, Array, Array], None]
    """``(by_norm, y, of_norm, strip, tiles, by_bias)``: store the derivatives by the tiles that ``outputs`` was given,
    and add those by its bias, in float64. Those by ``y`` are ``slope by_norm + bend y + shift``, where ``of_norm`` has
    each channel's slope, then bend, then shift."""
    by_pooled: Callable[[Array, Array, Array, Array, Array, Array], None]
    """As ``by_outputs``, of norms that are pooled: ``by_norm`` is that by the pooled ones, and ``of_norm`` has each
    channel's factor and shift of :class:`raysim.training.networks.norms.Norms` besides."""


@compiled
def _a(g0, g1, g2, g3):  # type: ignore[no-untyped-def]
    even, odd, near, far = g0 + g2, g1 + g3, g0 + _4 * g2, _2 * g1 + _8 * g3
    return g0, even + odd, even - odd, near + far, near - far, g3


@inlined
def _columns_of_a(strip, tiles, to, point, channels):  # type: ignore[no-untyped-def]
    """A of the six columns of ``strip``, whose lines of six begin four times, as the points of a tile at ``to``."""
    line, step = _u(6) * channels, _u(6) * point
    for k in range(_u(6)):
        for c in range(channels):
            q = k * channels + c
            v0, v1, v2, v3, v4, v5 = _a(strip[q], strip[q + line], strip[q + _u(2) * line], strip[q + _u(3) * line])
            q = to + k * point + c
            tiles[q], tiles[q + step], tiles[q + _u(2) * step] = v0, v1, v2
            tiles[q + _u(3) * step], tiles[q + _u(4) * step], tiles[q + _u(5) * step] = v3, v4, v5


@compiled
def _shares(zero, factor, shift, y0, y1, y2, y3, by_best):  # type: ignore[no-untyped-def]
    """``by_best`` for the first of the four whose norm is largest, and ``zero`` for the others."""
    v0, v1, v2, v3 = factor * y0 + shift, factor * y1 + shift, factor * y2 + shift, factor * y3 + shift
    second, fourth = v1 > v0, v3 > v2
    lower = (v3 if fourth else v2) > (v1 if second else v0)
    upper_share, lower_share = zero if lower else by_best, by_best if lower else zero
    return (
        zero if second else upper_share,
        upper_share if second else zero,
        zero if fourth else lower_share,
        lower_share if fourth else zero,
    )


@lru_cache
def gradients(high: int, wide: int, channels: int, places: int) -> Gradients:
    """For images of ``high x wide x channels`` and tiles with ``places`` for each point. All arrays are flat."""
    u = np.uint64  # numbers without a sign, see winograd.transforms
    C, rows, columns, two, four, six = u(channels), u(high // TILE), u(wide // TILE), u(2), u(4), u(6)
    line, image = u(wide * channels), u(high * wide * channels)
    point = u(places * channels + APART)
    c1, c2, c3, c4, c5 = C, u(2) * C, u(3) * C, u(4) * C, u(5) * C

    def by_outputs(by_norm, y, of_norm, strip, tiles, by_bias):  # type: ignore[no-untyped-def]
        zero = y.dtype.type(0)
        to = u(0)
        for n in range(u(len(y)) // image):
            for i in range(rows):
                for j in range(columns):
                    corner = n * image + four * (i * line + j * C)
                    for r in range(four):
                        start, s = corner + r * line, r * six * C
                        for c in range(C):
                            q = start + c
                            e, f, h = of_norm[c], of_norm[c + c1], of_norm[c + c2]
                            y0, y1, y2, y3 = y[q], y[q + c1], y[q + c2], y[q + c3]
                            g0 = zero if y0 <= zero else e * by_norm[q] + f * y0 + h
                            g1 = zero if y1 <= zero else e * by_norm[q + c1] + f * y1 + h
                            g2 = zero if y2 <= zero else e * by_norm[q + c2] + f * y2 + h
                            g3 = zero if y3 <= zero else e * by_norm[q + c3] + f * y3 + h
                            v0, v1, v2, v3, v4, v5 = _a(g0, g1, g2, g3)
                            q = s + c
                            strip[q], strip[q + c1], strip[q + c2] = v0, v1, v2
                            strip[q + c3], strip[q + c4], strip[q + c5] = v3, v4, v5
                        for c in range(C):
                            by_bias[c] += strip[s + c1 + c]  # the sum of four
                    _columns_of_a(strip, tiles, to, point, C)
                    to += C

    def by_pooled(by_norm, y, of_norm, strip, tiles, by_bias):  # type: ignore[no-untyped-def]
        zero = y.dtype.type(0)
        to = u(0)
        for n in range(u(len(y)) // image):
            for i in range(rows):
                for j in range(columns):
                    corner = n * image + four * (i * line + j * C)
                    pool = n * (image // four) + two * (i * (line // two) + j * C)
                    for r in range(two):
                        start, best, s = corner + two * r * line, pool + r * (line // two), two * r * six * C
                        for c in range(C):
                            e, f, h = of_norm[c], of_norm[c + c1], of_norm[c + c2]
                            factor, shift = of_norm[c + c3], of_norm[c + c4]
                            q = start + c
                            y0, y1, y2, y3 = y[q], y[q + c1], y[q + c2], y[q + c3]
                            q = q + line
                            z0, z1, z2, z3 = y[q], y[q + c1], y[q + c2], y[q + c3]
                            q = best + c
                            g0, g1, h0, h1 = _shares(zero, factor, shift, y0, y1, z0, z1, by_norm[q])
                            g2, g3, h2, h3 = _shares(zero, factor, shift, y2, y3, z2, z3, by_norm[q + c1])
                            g0 = zero if y0 <= zero else e * g0 + f * y0 + h
                            g1 = zero if y1 <= zero else e * g1 + f * y1 + h
                            g2 = zero if y2 <= zero else e * g2 + f * y2 + h
                            g3 = zero if y3 <= zero else e * g3 + f * y3 + h
                            v0, v1, v2, v3, v4, v5 = _a(g0, g1, g2, g3)
                            q = s + c
                            strip[q], strip[q + c1], strip[q + c2] = v0, v1, v2
                            strip[q + c3], strip[q + c4], strip[q + c5] = v3, v4, v5
                            h0 = zero if z0 <= zero else e * h0 + f * z0 + h
                            h1 = zero if z1 <= zero else e * h1 + f * z1 + h
                            h2 = zero if z2 <= zero else e * h2 + f * z2 + h
                            h3 = zero if z3 <= zero else e * h3 + f * z3 + h
                            v0, v1, v2, v3, v4, v5 = _a(h0, h1, h2, h3)
                            q = q + six * C
                            strip[q], strip[q + c1], strip[q + c2] = v0, v1, v2
                            strip[q + c3], strip[q + c4], strip[q + c5] = v3, v4, v5
                        for c in range(C):
                            by_bias[c] += strip[s + c1 + c] + strip[s + six * C + c1 + c]  # the sums of four
                    _columns_of_a(strip, tiles, to, point, C)
                    to += C

    return Gradients(compiled(by_outputs), compiled(by_pooled))
