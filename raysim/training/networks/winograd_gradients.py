"""The derivatives by Winograd's tiles of outputs, from those by batch norm, alone or with max pooling of 2 x 2.

What stands between them and the tiles, batch norm's derivative and ReLU's, is taken on the way, so that no images are
written. Arrays are those of :mod:`raysim.training.networks.winograd`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from raysim.training.networks.compiled import by_address, compiled, inlined
from raysim.training.networks.winograd import TILE, plane
from raysim.training.networks.written import Array

_F, _u = np.float32, np.uint64
_2, _4, _8 = _F(2), _F(4), _F(8)


class Gradients(NamedTuple):
    """The loops for outputs ``y`` of one size and number of channels, that are ``max(A' m A + bias, 0)``."""

    by_outputs: Callable[[Array, Array, Array, int, int, Array, Array, Array, Array], None]
    """``(by_norm, y, of_norm, low, high, room, strip, tiles, by_bias)``: store the derivatives by the tiles that ``outputs``
    was given, and add those by its bias, in float64. Those by ``y`` are ``slope by_norm + bend y + shift``, where ``of_norm`` has
    each channel's slope, then bend, then shift."""
    by_pooled: Callable[[Array, Array, Array, int, int, Array, Array, Array, Array], None]
    """As ``by_outputs``, of norms that are pooled: ``by_norm`` is that by the pooled ones, and ``of_norm`` has each
    channel's factor and shift of :class:`raysim.training.networks.norms.Norms` besides."""


@compiled
def _a(g0, g1, g2, g3):  # type: ignore[no-untyped-def]
    even, odd, near, far = g0 + g2, g1 + g3, g0 + _4 * g2, _2 * g1 + _8 * g3
    return g0, even + odd, even - odd, near + far, near - far, g3


@inlined
def _tile(room, start, line, strip, tiles, to, point, channels, by_bias):  # type: ignore[no-untyped-def]
    """The 36 points of the tile at ``start``, whose lines of four are ``line`` apart, from ``to`` on in ``tiles``."""
    for r in range(_u(4)):
        for c in range(channels):
            q = start + r * line + c
            v0, v1, v2, v3, v4, v5 = _a(room[q], room[q + channels], room[q + _u(2) * channels], room[q + _u(3) * channels])
            q = r * _u(6) * channels + c
            strip[q], strip[q + channels], strip[q + _u(2) * channels] = v0, v1, v2
            strip[q + _u(3) * channels], strip[q + _u(4) * channels], strip[q + _u(5) * channels] = v3, v4, v5
        for c in range(channels):
            by_bias[c] += strip[(r * _u(6) + _u(1)) * channels + c]  # the sum of four
    row, step = _u(6) * channels, _u(6) * point
    for k in range(_u(6)):
        for c in range(channels):
            q = k * channels + c
            v0, v1, v2, v3, v4, v5 = _a(strip[q], strip[q + row], strip[q + _u(2) * row], strip[q + _u(3) * row])
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
def gradients(wide: int, channels: int, places: int, dtype: Any) -> Gradients:
    """For images of ``high x wide x channels`` and tiles with ``places`` for each point. All arrays are flat."""
    u = np.uint64  # numbers without a sign, see winograd.transforms
    C, columns, W, two, four, six = u(channels), u(wide // TILE), u(wide), u(2), u(4), u(6)
    line = u(wide * channels)
    point, zero = u(plane(places, channels)), np.dtype(dtype).type(0)
    c2, c3, c4 = u(2) * C, u(3) * C, u(4) * C

    def by_outputs(by_norm, y, of_norm, low, high, room, strip, tiles, by_bias):  # type: ignore[no-untyped-def]
        to = u(0)
        for row in range(low, high):
            start = four * row * line
            for k in range(four * W):
                for c in range(C):
                    v, q = y[start + k * C + c], k * C + c
                    g = of_norm[c] * by_norm[start + q] + of_norm[C + c] * v + of_norm[c2 + c]
                    room[q] = zero if v <= zero else g
            for j in range(columns):
                _tile(room, four * j * C, line, strip, tiles, to, point, C, by_bias)
                to += C

    def by_pooled(by_norm, y, of_norm, low, high, room, strip, tiles, by_bias):  # type: ignore[no-untyped-def]
        to = u(0)
        for row in range(low, high):
            for r in range(two):
                at, best = (four * row + two * r) * line, (two * row + r) * (line // two)
                for k in range(W // two):
                    start, pool, into = at + two * k * C, best + k * C, two * r * line + two * k * C
                    for c in range(C):
                        q = start + c
                        y0, y1, y2, y3 = y[q], y[q + C], y[q + line], y[q + line + C]
                        g0, g1, g2, g3 = _shares(zero, of_norm[c3 + c], of_norm[c4 + c], y0, y1, y2, y3, by_norm[pool + c])
                        e, f, h = of_norm[c], of_norm[C + c], of_norm[c2 + c]
                        q = into + c
                        room[q] = zero if y0 <= zero else e * g0 + f * y0 + h
                        room[q + C] = zero if y1 <= zero else e * g1 + f * y1 + h
                        room[q + line] = zero if y2 <= zero else e * g2 + f * y2 + h
                        room[q + line + C] = zero if y3 <= zero else e * g3 + f * y3 + h
            for j in range(columns):
                _tile(room, four * j * C, line, strip, tiles, to, point, C, by_bias)
                to += C

    return Gradients(by_address(by_outputs, "aaannaaar", dtype), by_address(by_pooled, "aaannaaar", dtype))
