"""Winograd's convolution F(4 x 4, 3 x 3), compiled for this processor.

Lavin and Gray, "Fast algorithms for convolutional neural networks", CVPR 2016, section 4.1. A tile of 4 x 4 outputs
comes from 6 x 6 inputs: ``Y = A' [(G w G') * (B' d B)] A``. Summed over channels, the product in the middle is 36
products of matrices, with a quarter of the multiplications of the convolution itself. What surrounds them is
additions. They are the cost, so that they are compiled: :func:`transforms` makes loops for one size of images, whose
numbers are constants of the compiler.

Arrays are images ``[n, H, W, C]`` with channels last, and tiles ``[36, T, C]`` with T places for the ``H W / 16`` tiles
of each image, one image after another. H and W are multiples of 4. In float32 results differ from the convolution by a
few millionths of their largest value.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from raysim.training.networks.compiled import by_address, compiled, inlined
from raysim.training.networks.written import Array

TILE, LINES, POINTS = 4, 6, 36
"""Outputs in a row of a tile, and its inputs; points at which its polynomials are multiplied."""
APART = 16
"""Numbers between points: those of a tile would else compete for the same few lines of the cache."""

_F, _real, _u = np.float32, np.float64, np.uint64
_2, _4, _5, _8 = _F(2), _F(4), _F(5), _F(8)


class Transforms(NamedTuple):
    """The transforms of images of one size and number of channels: of those from number ``low`` up to ``high``.

    Tiles are theirs alone. ``room``: memory of ``6 (W + 2) C``, that of ``inputs`` with zeros in the first and last
    column; ``strip``: of ``36 C``. These are overwritten. Images are read and written line by line, which a processor
    sees coming, and as tiles where they are in its nearest cache.
    """

    inputs: Callable[[Array, Array, int, int, Array, Array, Array], None]
    """``(x, of_norm, low, high, room, strip, tiles)``: store ``B' d B`` of the tiles of ``x``, padded by zeros.
    ``of_norm``: see :func:`transforms`."""
    outputs: Callable[[Array, Array, int, int, Array, Array, Array, Array], None]
    """``(tiles, bias, low, high, room, strip, y, sums)``: store ``max(A' m A + bias, 0)`` in ``y``, and add each channel's to
    ``sums``, and behind these their squares, in float64."""
    by_inputs: Callable[[Array, Array, int, int, Array, Array, Array, Array], None]
    """``(by_tiles, x, low, high, room, strip, by_x, sums)``: store the derivatives by the images of ``inputs``, after
    their norm if they have one; then add each channel's to ``sums``, and behind these their products with ``x``, in
    float64."""


def plane(rows: int, columns: int) -> int:
    """Numbers from one of the 36 points to the next, of ``rows x columns`` each."""
    return rows * columns + APART


def points(flat: Array, rows: int, columns: int) -> Array:
    """``[36, rows, columns]`` of memory as the loops take it."""
    apart = plane(rows, columns)
    return flat[: POINTS * apart].reshape(POINTS, apart)[:, : rows * columns].reshape(POINTS, rows, columns)


@compiled
def _b_transposed(d0, d1, d2, d3, d4, d5):  # type: ignore[no-untyped-def]
    even, odd, near, far = d4 - _4 * d2, d3 - _4 * d1, d4 - d2, _2 * (d3 - d1)
    return _4 * d0 - _5 * d2 + d4, even + odd, even - odd, near + far, near - far, _4 * d1 - _5 * d3 + d5


@compiled
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


@compiled
def _a_transposed(m0, m1, m2, m3, m4, m5):  # type: ignore[no-untyped-def]
    near, less, far, wide = m1 + m2, m1 - m2, m3 + m4, m3 - m4
    return m0 + near + far, less + _2 * wide, near + _4 * far, less + _8 * wide + m5


@inlined
def _line_of_b_transposed(given, start, apart, into, to, step, channels):  # type: ignore[no-untyped-def]
    """B' of six times ``channels`` numbers of ``given``, which begin ``apart``, as six ``step`` apart in ``into``."""
    for c in range(channels):
        q, d2, d3, d4, d5 = start + c, _u(2) * apart, _u(3) * apart, _u(4) * apart, _u(5) * apart
        v0, v1, v2, v3, v4, v5 = _b_transposed(
            given[q], given[q + apart], given[q + d2], given[q + d3], given[q + d4], given[q + d5]
        )
        q = to + c
        into[q], into[q + step], into[q + _u(2) * step] = v0, v1, v2
        into[q + _u(3) * step], into[q + _u(4) * step], into[q + _u(5) * step] = v3, v4, v5


@inlined
def _line_of_b(given, start, apart, into, to, step, channels):  # type: ignore[no-untyped-def]
    for c in range(channels):
        q, d2, d3, d4, d5 = start + c, _u(2) * apart, _u(3) * apart, _u(4) * apart, _u(5) * apart
        v0, v1, v2, v3, v4, v5 = _b(
            given[q], given[q + apart], given[q + d2], given[q + d3], given[q + d4], given[q + d5]
        )
        q = to + c
        into[q], into[q + step], into[q + _u(2) * step] = v0, v1, v2
        into[q + _u(3) * step], into[q + _u(4) * step], into[q + _u(5) * step] = v3, v4, v5


@inlined
def _add_line_of_b(given, start, apart, into, to, step, channels):  # type: ignore[no-untyped-def]
    for c in range(channels):
        q, d2, d3, d4, d5 = start + c, _u(2) * apart, _u(3) * apart, _u(4) * apart, _u(5) * apart
        v0, v1, v2, v3, v4, v5 = _b(
            given[q], given[q + apart], given[q + d2], given[q + d3], given[q + d4], given[q + d5]
        )
        q = to + c
        into[q] += v0
        into[q + step] += v1
        into[q + _u(2) * step] += v2
        into[q + _u(3) * step] += v3
        into[q + _u(4) * step] += v4
        into[q + _u(5) * step] += v5


@inlined
def _line_of_a_transposed(given, start, apart, into, to, step, channels):  # type: ignore[no-untyped-def]
    for c in range(channels):
        q, d2, d3, d4, d5 = start + c, _u(2) * apart, _u(3) * apart, _u(4) * apart, _u(5) * apart
        v0, v1, v2, v3 = _a_transposed(
            given[q], given[q + apart], given[q + d2], given[q + d3], given[q + d4], given[q + d5]
        )
        q = to + c
        into[q], into[q + step], into[q + _u(2) * step], into[q + _u(3) * step] = v0, v1, v2, v3


@lru_cache
def transforms(
    high: int, wide: int, channels: int, places: int, dtype: Any, given: int | None = None, normed: bool = False
) -> Transforms:
    """For images of ``high x wide x channels`` and tiles with ``places`` for each point. All arrays are flat.

    - ``given``: the channels of the images that ``inputs`` takes, where they are fewer; tiles of the others are zero.
    - ``normed``: whether ``inputs`` transforms ``factor x + shift``, with ``of_norm [2 C]``: each channel's factor, then
      each one's shift.
    """
    # Numbers without a sign: an index that might be negative is one that the compiler looks at first.
    u = np.uint64
    C, D, W, H = u(channels), u(given or channels), u(wide), u(high)
    rows, columns = u(high // TILE), u(wide // TILE)
    zero, one, two, three, four, five, six = (u(k) for k in range(7))
    line, wall = W * C, (W + two) * C
    point, nothing = u(plane(places, channels)), np.dtype(dtype).type(0)

    def inputs(x, of_norm, low, high, room, strip, tiles):  # type: ignore[no-untyped-def]
        for c in range(six * wall):
            room[c] = nothing
        to = zero
        for row in range(low, high):
            n, i = row // rows, row % rows
            # The room has lines 4 i - 1 to 4 i + 4 of the image; its first and last columns stay zero.
            first = zero
            if i > zero and row > low:
                first = two
                for c in range(two * wall):
                    room[c] = room[four * wall + c]
            for r in range(first, six):
                h, into = four * i + r, r * wall + C  # h: one more than the line's number
                if h == zero or h > H:
                    for c in range(line):
                        room[into + c] = nothing
                    continue
                start = (n * H + h - one) * W * D
                if normed:
                    for c in range(line):
                        room[into + c] = of_norm[c] * x[start + c] + of_norm[line + c]
                elif C == D:
                    for c in range(line):
                        room[into + c] = x[start + c]
                else:
                    for k in range(W):
                        for c in range(D):
                            room[into + k * C + c] = x[start + k * D + c]
            for j in range(columns):
                for r in range(six):
                    _line_of_b_transposed(room, r * wall + four * j * C, C, strip, r * six * C, C, C)
                for k in range(six):
                    _line_of_b_transposed(strip, k * C, six * C, tiles, to + k * point, six * point, C)
                to += C

    def outputs(tiles, bias, low, high, room, strip, y, sums):  # type: ignore[no-untyped-def]
        at = zero
        for row in range(low, high):
            for j in range(columns):
                for k in range(six):
                    _line_of_a_transposed(tiles, at + k * point, six * point, strip, k * C, six * C, C)
                for r in range(four):
                    _line_of_a_transposed(strip, r * six * C, C, room, r * line + four * j * C, C, C)
                at += C
            start = four * row * line
            for k in range(columns * four):
                for c in range(C):
                    q, z = four * k * C + c, bias[c]
                    m0, m1, m2, m3 = room[q] + z, room[q + C] + z, room[q + two * C] + z, room[q + three * C] + z
                    m0, m1 = nothing if m0 < nothing else m0, nothing if m1 < nothing else m1  # NaN stays
                    m2, m3 = nothing if m2 < nothing else m2, nothing if m3 < nothing else m3
                    q = start + q
                    y[q], y[q + C], y[q + two * C], y[q + three * C] = m0, m1, m2, m3
                    d0, d1, d2, d3 = _real(m0), _real(m1), _real(m2), _real(m3)
                    sums[c] += (d0 + d1) + (d2 + d3)
                    sums[C + c] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)

    def by_inputs(by_tiles, x, low, high, room, strip, by_x, sums):  # type: ignore[no-untyped-def]
        at = zero
        for row in range(low, high):
            i = row % rows
            # As that of inputs, for sums; the image's lines up to 4 i - 2 are complete.
            if i == zero:
                for c in range(two * wall):
                    room[c] = nothing
            else:
                for c in range(two * wall):
                    room[c] = room[four * wall + c]
            for c in range(four * wall):
                room[two * wall + c] = nothing
            for j in range(columns):
                for k in range(six):
                    _line_of_b(by_tiles, at + k * point, six * point, strip, k * C, six * C, C)
                for r in range(six):
                    _add_line_of_b(strip, r * six * C, C, room, r * wall + four * j * C, C, C)
                at += C
            for r in range(one if i == zero else zero, five if i + one == rows else four):
                start, into = r * wall + C, (four * row + r - one) * line
                for c in range(line):
                    by_x[into + c] = room[start + c]
                if normed:
                    for k in range(columns):
                        for c in range(C):
                            q = into + four * k * C + c
                            d0, d1 = _real(by_x[q]), _real(by_x[q + C])
                            d2, d3 = _real(by_x[q + two * C]), _real(by_x[q + three * C])
                            x0, x1 = _real(x[q]), _real(x[q + C])
                            x2, x3 = _real(x[q + two * C]), _real(x[q + three * C])
                            sums[c] += (d0 + d1) + (d2 + d3)
                            sums[C + c] += (d0 * x0 + d1 * x1) + (d2 * x2 + d3 * x3)

    return Transforms(
        by_address(inputs, "aannaaa", dtype),
        by_address(outputs, "aannaaar", dtype),
        by_address(by_inputs, "aannaaar", dtype),
    )
