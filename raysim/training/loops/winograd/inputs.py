"""Winograd's transform of the images that a convolution takes, and its derivative."""

from __future__ import annotations

from typing import Any

import numpy as np

from raysim.training.loops.winograd.points import TILE, plane
from raysim.training.loops.winograd.sixes import put_six, six_of
from raysim.training.loops.writing import called, inlined

_F, _real, _u = np.float32, np.float64, np.uint64
_2, _4, _5 = _F(2), _F(4), _F(5)
# Numbers without a sign: an index that might be negative is one that the compiler looks at first.
_ZERO, _ONE, _TWO, _THREE, _FOUR, _FIVE, _SIX = (_u(k) for k in range(7))


@called
def _b_transposed(d0, d1, d2, d3, d4, d5):  # type: ignore[no-untyped-def]
    even, odd, near, far = d4 - _4 * d2, d3 - _4 * d1, d4 - d2, _2 * (d3 - d1)
    return _4 * d0 - _5 * d2 + d4, even + odd, even - odd, near + far, near - far, _4 * d1 - _5 * d3 + d5


@called
def _b(v0, v1, v2, v3, v4, v5):  # type: ignore[no-untyped-def]
    near, less, far, wide = v1 + v2, v1 - v2, v3 + v4, v3 - v4
    return (
        _4 * v0,
        _4 * (v5 - less) - _2 * wide,
        -_5 * v0 - _4 * near - far,
        less + _2 * wide - _5 * v5,
        v0 + near + far,
        v5,
    )


@inlined
def _line(transform, given, start, apart, into, to, step, channels):  # type: ignore[no-untyped-def]
    """Six times ``channels`` numbers of ``given``, which begin ``apart``, as six ``step`` apart in ``into``."""
    for c in range(channels):
        put_six(transform(*six_of(given, start + c, apart)), into, to + c, step)


@inlined
def _add_line(given, start, apart, into, to, step, channels):  # type: ignore[no-untyped-def]
    """Add B of such numbers to those in ``into``."""
    for c in range(channels):
        v0, v1, v2, v3, v4, v5 = _b(*six_of(given, start + c, apart))
        w0, w1, w2, w3, w4, w5 = six_of(into, to + c, step)
        put_six((w0 + v0, w1 + v1, w2 + v2, w3 + v3, w4 + v4, w5 + v5), into, to + c, step)


def inputs(high: int, wide: int, given: int, channels: int, places: int, normed: bool, dtype: str) -> Any:
    """``(x, of_norm, low, high, room, strip, tiles)``: store ``B' d B`` of the tiles of ``x``, padded by zeros.

    - ``x``: images of ``high x wide x given``; ``tiles`` have ``channels``, which may be more: these are zero.
    - ``places``: the most tiles.
    - ``normed``: whether ``factor x + shift`` is transformed.
    - ``of_norm``: the factor of each number of a line, then each one's shift.
    """
    D, C, W, H, own, line = (_u(k) for k in (given, channels, wide, high, wide * given, wide * channels))
    rows, columns, wall = _u(high // TILE), _u(wide // TILE), _u((wide + 2) * channels)
    point, nothing = _u(plane(places, channels)), np.dtype(dtype).type(0)

    def inputs(x, of_norm, low, high, room, strip, tiles):  # type: ignore[no-untyped-def]
        for c in range(_SIX * wall):
            room[c] = nothing
        to = _ZERO
        for row in range(low, high):
            n, i = row // rows, row % rows
            # The room has lines 4 i - 1 to 4 i + 4 of the image. Nothing is written into its first and last columns.
            first = _ZERO
            if i > _ZERO and row > low:
                first = _TWO
                for c in range(_TWO * wall):
                    room[c] = room[_FOUR * wall + c]
            for r in range(first, _SIX):
                h, into = _FOUR * i + r, r * wall + C  # h: one more than the line's number
                if h == _ZERO or h > H:
                    for c in range(line):
                        room[into + c] = nothing
                    continue
                start = (n * H + h - _ONE) * own
                if C > D:
                    for k in range(W):
                        for c in range(D):
                            q = k * D + c
                            v = of_norm[q] * x[start + q] + of_norm[own + q] if normed else x[start + q]
                            room[into + k * C + c] = v
                elif normed:
                    for c in range(line):
                        room[into + c] = of_norm[c] * x[start + c] + of_norm[line + c]
                else:
                    for c in range(line):
                        room[into + c] = x[start + c]
            for j in range(columns):
                for r in range(_SIX):
                    _line(_b_transposed, room, r * wall + _FOUR * j * C, C, strip, r * _SIX * C, C, C)
                for k in range(_SIX):
                    _line(_b_transposed, strip, k * C, _SIX * C, tiles, to + k * point, _SIX * point, C)
                to += C

    return inputs


def by_inputs(high: int, wide: int, channels: int, places: int, normed: bool, dtype: str) -> Any:
    """``(by_tiles, x, low, high, room, strip, by_x, sums)``: store the derivatives by what :func:`inputs` transformed.

    All rows of an image come in order, with one ``room``. If that was ``normed``, each channel's derivatives are added
    to ``sums``, and behind these their products with ``x``, in float64.
    """
    C, line, rows, columns = _u(channels), _u(wide * channels), _u(high // TILE), _u(wide // TILE)
    wall, point, nothing = _u((wide + 2) * channels), _u(plane(places, channels)), np.dtype(dtype).type(0)

    def by_inputs(by_tiles, x, low, high, room, strip, by_x, sums):  # type: ignore[no-untyped-def]
        at = _ZERO
        for row in range(low, high):
            i = row % rows
            # Sums of lines 4 i - 1 to 4 i + 4 of the image; the first two have got those of the tiles above.
            if i == _ZERO:
                for c in range(_TWO * wall):
                    room[c] = nothing
            else:
                for c in range(_TWO * wall):
                    room[c] = room[_FOUR * wall + c]
            for c in range(_FOUR * wall):
                room[_TWO * wall + c] = nothing
            for j in range(columns):
                for k in range(_SIX):
                    _line(_b, by_tiles, at + k * point, _SIX * point, strip, k * C, _SIX * C, C)
                for r in range(_SIX):
                    _add_line(strip, r * _SIX * C, C, room, r * wall + _FOUR * j * C, C, C)
                at += C
            for r in range(_ONE if i == _ZERO else _ZERO, _FIVE if i + _ONE == rows else _FOUR):
                start, into = r * wall + C, (_FOUR * row + r - _ONE) * line
                for c in range(line):
                    by_x[into + c] = room[start + c]
                if normed:
                    for k in range(columns):
                        for c in range(C):
                            q = into + _FOUR * k * C + c
                            d0, d1 = _real(by_x[q]), _real(by_x[q + C])
                            d2, d3 = _real(by_x[q + _TWO * C]), _real(by_x[q + _THREE * C])
                            x0, x1 = _real(x[q]), _real(x[q + C])
                            x2, x3 = _real(x[q + _TWO * C]), _real(x[q + _THREE * C])
                            sums[c] += (d0 + d1) + (d2 + d3)
                            sums[C + c] += (d0 * x0 + d1 * x1) + (d2 * x2 + d3 * x3)

    return by_inputs
