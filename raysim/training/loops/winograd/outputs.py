"""Winograd's transform to the images that a convolution gives, with ReLU, and its derivatives from batch norm's.

What stands between the derivatives by batch norm and those by tiles, its own derivative, ReLU's and that of max pooling
of 2 x 2, is taken on the way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raysim.training.loops.winograd.points import TILE, plane
from raysim.training.loops.winograd.pooling import largest
from raysim.training.loops.winograd.sixes import put_six, six_of
from raysim.training.loops.writing import called, inlined

_F, _real, _u = np.float32, np.float64, np.uint64  # without a sign, see winograd.inputs
_2, _4, _8 = _F(2), _F(4), _F(8)
_ZERO, _TWO, _THREE, _FOUR, _SIX = (_u(k) for k in (0, 2, 3, 4, 6))


@called
def _a_transposed(m0, m1, m2, m3, m4, m5):  # type: ignore[no-untyped-def]
    near, less, far, wide = m1 + m2, m1 - m2, m3 + m4, m3 - m4
    return m0 + near + far, less + _2 * wide, near + _4 * far, less + _8 * wide + m5


@called
def _a(g0, g1, g2, g3):  # type: ignore[no-untyped-def]
    even, odd, near, far = g0 + g2, g1 + g3, g0 + _4 * g2, _2 * g1 + _8 * g3
    return g0, even + odd, even - odd, near + far, near - far, g3


@inlined
def _four_of_six(given, start, apart, into, to, step, channels):  # type: ignore[no-untyped-def]
    """A' of six times ``channels`` numbers of ``given``, which begin ``apart``, as four ``step`` apart in ``into``."""
    for c in range(channels):
        v0, v1, v2, v3 = _a_transposed(*six_of(given, start + c, apart))
        q = to + c
        into[q], into[q + step], into[q + _TWO * step], into[q + _THREE * step] = v0, v1, v2, v3


@inlined
def _six_of_four(given, start, apart, into, to, step, channels):  # type: ignore[no-untyped-def]
    """A of four, likewise."""
    for c in range(channels):
        q = start + c
        six = _a(given[q], given[q + apart], given[q + _TWO * apart], given[q + _THREE * apart])
        put_six(six, into, to + c, step)


@inlined
def _points(room, line, columns, strip, tiles, to, point, channels, by_bias):  # type: ignore[no-untyped-def]
    """The points of a row of tiles, four lines of ``room``, from ``to`` on in ``tiles``."""
    for j in range(columns):
        for r in range(_FOUR):
            row = r * _SIX * channels
            _six_of_four(room, r * line + _FOUR * j * channels, channels, strip, row, channels, channels)
            for c in range(channels):
                by_bias[c] += strip[row + channels + c]  # A's second number is the sum of four
        for k in range(_SIX):
            at = to + j * channels + k * point
            _six_of_four(strip, k * channels, _SIX * channels, tiles, at, _SIX * point, channels)


@called
def _shares(zero, factor, shift, y0, y1, y2, y3, by_best):  # type: ignore[no-untyped-def]
    """``by_best`` for the first of the four whose norm is largest, and ``zero`` for the others."""
    second, fourth, lower = largest(factor, shift, y0, y1, y2, y3)
    upper_share, lower_share = zero if lower else by_best, by_best if lower else zero
    return (
        zero if second else upper_share,
        upper_share if second else zero,
        zero if fourth else lower_share,
        lower_share if fourth else zero,
    )


def outputs(wide: int, channels: int, places: int, dtype: str) -> Any:
    """``(tiles, bias, low, high, room, strip, y, sums)``: store ``max(A' m A + bias, 0)`` in ``y``.

    Each channel's are added to ``sums``, and behind these their squares, in float64.
    """
    C, line, columns = _u(channels), _u(wide * channels), _u(wide // TILE)
    point, nothing = _u(plane(places, channels)), np.dtype(dtype).type(0)

    def outputs(tiles, bias, low, high, room, strip, y, sums):  # type: ignore[no-untyped-def]
        at = _ZERO
        for row in range(low, high):
            for j in range(columns):
                for k in range(_SIX):
                    _four_of_six(tiles, at + k * point, _SIX * point, strip, k * C, _SIX * C, C)
                for r in range(_FOUR):
                    _four_of_six(strip, r * _SIX * C, C, room, r * line + _FOUR * j * C, C, C)
                at += C
            start = _FOUR * row * line
            for k in range(_FOUR * columns):
                for c in range(C):
                    q, z = _FOUR * k * C + c, bias[c]
                    m0, m1, m2, m3 = room[q] + z, room[q + C] + z, room[q + _TWO * C] + z, room[q + _THREE * C] + z
                    m0, m1 = nothing if m0 < nothing else m0, nothing if m1 < nothing else m1  # NaN stays
                    m2, m3 = nothing if m2 < nothing else m2, nothing if m3 < nothing else m3
                    q = start + q
                    y[q], y[q + C], y[q + _TWO * C], y[q + _THREE * C] = m0, m1, m2, m3
                    d0, d1, d2, d3 = _real(m0), _real(m1), _real(m2), _real(m3)
                    sums[c] += (d0 + d1) + (d2 + d3)
                    sums[C + c] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)

    return outputs


def by_outputs(wide: int, channels: int, places: int, dtype: str) -> Any:
    """``(by_norm, y, of_norm, low, high, room, strip, tiles, by_bias)``: store the derivatives by its tiles.

    Those by its bias are added to ``by_bias``, in float64. Those by ``y`` are ``slope by_norm + bend y + shift``;
    ``of_norm`` has each channel's slope, then each one's bend, then each one's shift.
    """
    C, W, line, columns = _u(channels), _u(wide), _u(wide * channels), _u(wide // TILE)
    point, nothing = _u(plane(places, channels)), np.dtype(dtype).type(0)

    def by_outputs(by_norm, y, of_norm, low, high, room, strip, tiles, by_bias):  # type: ignore[no-untyped-def]
        to = _ZERO
        for row in range(low, high):
            start = _FOUR * row * line
            for k in range(_FOUR * W):
                for c in range(C):
                    q = start + k * C + c
                    g = of_norm[c] * by_norm[q] + of_norm[C + c] * y[q] + of_norm[_TWO * C + c]
                    room[k * C + c] = nothing if y[q] <= nothing else g
            _points(room, line, columns, strip, tiles, to, point, C, by_bias)
            to += columns * C

    return by_outputs


def by_pooled(wide: int, channels: int, places: int, dtype: str) -> Any:
    """As :func:`by_outputs`, of norms that are pooled: ``by_norm`` is that by the pooled ones.

    ``of_norm`` has each channel's factor and shift of :mod:`raysim.training.loops.winograd.pooling` besides.
    """
    C, line, columns = _u(channels), _u(wide * channels), _u(wide // TILE)
    point, nothing = _u(plane(places, channels)), np.dtype(dtype).type(0)

    def by_pooled(by_norm, y, of_norm, low, high, room, strip, tiles, by_bias):  # type: ignore[no-untyped-def]
        to = _ZERO
        for row in range(low, high):
            for r in range(_TWO):
                into = _TWO * r * line
                start, best = _FOUR * row * line + into, (_TWO * row + r) * (line // _TWO)
                for k in range(_TWO * columns):
                    for c in range(C):
                        q = start + _TWO * k * C + c
                        y0, y1, y2, y3 = y[q], y[q + C], y[q + line], y[q + line + C]
                        factor, shift = of_norm[_THREE * C + c], of_norm[_FOUR * C + c]
                        g0, g1, g2, g3 = _shares(nothing, factor, shift, y0, y1, y2, y3, by_norm[best + k * C + c])
                        e, f, h = of_norm[c], of_norm[C + c], of_norm[_TWO * C + c]
                        q = into + _TWO * k * C + c
                        room[q] = nothing if y0 <= nothing else e * g0 + f * y0 + h
                        room[q + C] = nothing if y1 <= nothing else e * g1 + f * y1 + h
                        room[q + line] = nothing if y2 <= nothing else e * g2 + f * y2 + h
                        room[q + line + C] = nothing if y3 <= nothing else e * g3 + f * y3 + h
            _points(room, line, columns, strip, tiles, to, point, C, by_bias)
            to += columns * C

    return by_pooled
