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

from raysim.training.networks.compiled import compiled, inlined, memory
from raysim.training.networks.written import Array

TILE, POINTS = 4, 36
"""Outputs in a row of a tile; points at which a tile's polynomials are multiplied."""
APART = 16
"""Numbers between points: those of a tile would else compete for the same few lines of the cache."""

_F, _real, _u = np.float32, np.float64, np.uint64
_2, _4, _5, _8 = _F(2), _F(4), _F(5), _F(8)
_G = np.array([[1 / 4, 0, 0], [-1 / 6] * 3, [-1 / 6, 1 / 6, -1 / 6], [1 / 24, 1 / 12, 1 / 6], [1 / 24, -1 / 12, 1 / 6]])
_OF_WEIGHTS = np.kron(*[np.vstack([_G, [0, 0, 1]])] * 2)


class Transforms(NamedTuple):
    """The transforms of ``n`` images of one size and number of channels.

    ``room``: memory of ``(H + 2) (W + 2) C``, that of ``inputs`` with a border of zeros; ``strip``: of ``36 C``. These
    are overwritten.
    """

    inputs: Callable[[Array, Array, Array, Array], None]
    """``(x, room, strip, tiles)``: store ``B' d B`` of all tiles of ``x``, padded by zeros."""
    outputs: Callable[[Array, Array, Array, Array, Array], None]
    """``(tiles, bias, strip, y, sums)``: store ``max(A' m A + bias, 0)`` in ``y``, and add each channel's to ``sums``,
    and behind these their squares, in float64."""
    by_inputs: Callable[[Array, Array, Array, Array], None]
    """``(by_tiles, room, strip, by_x)``: store the derivatives by the images that ``inputs`` was given."""


def of_weights(weight: Array, out: Array) -> Array:
    """``G w G'`` of ``weight [b, a, 3, 3]``, stored in ``out [36, a, b]``, which is returned."""
    b, a, _, _ = weight.shape
    columns = weight.transpose(2, 3, 1, 0).reshape(9, a * b)
    np.matmul(_of_weights(weight.dtype), columns, out=out.reshape(POINTS, a * b))
    return out


def by_weights(by_product: Array) -> Array:
    """The derivatives ``[b, a, 3, 3]`` by the weights, of those by what :func:`of_weights` gives."""
    _, a, b = by_product.shape
    product: Array = np.matmul(_of_weights(by_product.dtype).T, by_product.reshape(POINTS, a * b))
    return product.reshape(3, 3, a, b).transpose(3, 2, 0, 1)


def tiles(places: int, channels: int, dtype: Any) -> tuple[Array, Array]:
    """Memory for tiles: flat, as the transforms take it, and as ``[36, places, channels]``."""
    flat = memory((POINTS * (places * channels + APART),), dtype)
    return flat, flat.reshape(POINTS, -1)[:, : places * channels].reshape(POINTS, places, channels)


@lru_cache
def _of_weights(dtype: Any) -> Array:
    return _OF_WEIGHTS.astype(dtype)


@compiled
def _b_transposed(d0, d1, d2, d3, d4, d5):  # type: ignore[no-untyped-def]
    even, odd, near, far = d4 - _4 * d2, d3 - _4 * d1, d4 - d2, _2 * (d3 - d1)
    return _4 * d0 - _5 * d2 + d4, even + odd, even - odd, near + far, near - far, _4 * d1 - _5 * d3 + d5


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


@lru_cache
def transforms(high: int, wide: int, channels: int, places: int, given: int | None = None) -> Transforms:
    """For images of ``high x wide x channels`` and tiles with ``places`` for each point. All arrays are flat.

    ``given``: the channels of the images that ``inputs`` takes, where they are fewer; tiles of the others are zero.
    """
    # Numbers without a sign: an index that might be negative is one that the compiler looks at first.
    u = np.uint64
    C, W, rows, columns, six, four = u(channels), u(wide), u(high // TILE), u(wide // TILE), u(6), u(4)
    one, H = u(1), u(high)
    line, image = W * C, H * W * C
    D = u(given or channels)
    wall = (W + u(2)) * C  # a line of the room
    point = u(places * channels + APART)
    c1, c2, c3, c4, c5 = C, u(2) * C, u(3) * C, u(4) * C, u(5) * C
    s1, s2, s3, s4, s5 = six * c1, six * c2, six * c3, six * c4, six * c5
    r1, r2, r3, r4, r5 = six * point, u(12) * point, u(18) * point, u(24) * point, u(30) * point

    def inputs(x, room, strip, tiles):  # type: ignore[no-untyped-def]
        to = u(0)
        for n in range(u(len(x)) // (H * W * D)):
            for h in range(H):
                for k in range(W):
                    start, into = ((n * H + h) * W + k) * D, (h + one) * wall + (k + one) * C
                    for c in range(D):
                        room[into + c] = x[start + c]
            for i in range(rows):
                for j in range(columns):
                    corner = four * (i * wall + j * C)
                    for r in range(six):
                        _line_of_b_transposed(room, corner + r * wall, C, strip, r * six * C, C, C)
                    for k in range(six):
                        _line_of_b_transposed(strip, k * C, s1, tiles, to + k * point, r1, C)
                    to += C

    def outputs(tiles, bias, strip, y, sums):  # type: ignore[no-untyped-def]
        zero = y.dtype.type(0)
        at = u(0)
        for n in range(u(len(y)) // image):
            for i in range(rows):
                for j in range(columns):
                    for k in range(six):
                        f, s = at + k * point, k * C
                        for c in range(C):
                            q = f + c
                            m0, m1, m2, m3 = _a_transposed(
                                tiles[q], tiles[q + r1], tiles[q + r2], tiles[q + r3], tiles[q + r4], tiles[q + r5]
                            )
                            q = s + c
                            strip[q], strip[q + s1], strip[q + s2], strip[q + s3] = m0, m1, m2, m3
                    corner = n * image + four * (i * line + j * C)
                    for r in range(four):
                        s, f = r * six * C, corner + r * line
                        for c in range(C):
                            q = s + c
                            m0, m1, m2, m3 = _a_transposed(
                                strip[q], strip[q + c1], strip[q + c2], strip[q + c3], strip[q + c4], strip[q + c5]
                            )
                            z = bias[c]
                            q = f + c
                            m0, m1, m2, m3 = m0 + z, m1 + z, m2 + z, m3 + z
                            m0, m1 = zero if m0 < zero else m0, zero if m1 < zero else m1  # NaN stays
                            m2, m3 = zero if m2 < zero else m2, zero if m3 < zero else m3
                            y[q], y[q + c1], y[q + c2], y[q + c3] = m0, m1, m2, m3
                        for c in range(C):
                            q = f + c
                            d0, d1, d2, d3 = _real(y[q]), _real(y[q + c1]), _real(y[q + c2]), _real(y[q + c3])
                            sums[c] += (d0 + d1) + (d2 + d3)
                            sums[C + c] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)
                    at += C

    def by_inputs(by_tiles, room, strip, by_x):  # type: ignore[no-untyped-def]
        zero = by_x.dtype.type(0)
        at = u(0)
        for n in range(u(len(by_x)) // image):
            for k in range(u(len(room))):
                room[k] = zero
            for i in range(rows):
                for j in range(columns):
                    for k in range(six):
                        f, s = at + k * point, k * C
                        for c in range(C):
                            q = f + c
                            v0, v1, v2, v3, v4, v5 = _b(
                                by_tiles[q],
                                by_tiles[q + r1],
                                by_tiles[q + r2],
                                by_tiles[q + r3],
                                by_tiles[q + r4],
                                by_tiles[q + r5],
                            )
                            q = s + c
                            strip[q], strip[q + s1], strip[q + s2] = v0, v1, v2
                            strip[q + s3], strip[q + s4], strip[q + s5] = v3, v4, v5
                    corner = four * (i * wall + j * C)
                    for r in range(six):
                        s, f = r * six * C, corner + r * wall
                        for c in range(C):
                            q = s + c
                            v0, v1, v2, v3, v4, v5 = _b(
                                strip[q], strip[q + c1], strip[q + c2], strip[q + c3], strip[q + c4], strip[q + c5]
                            )
                            q = f + c
                            room[q] += v0
                            room[q + c1] += v1
                            room[q + c2] += v2
                            room[q + c3] += v3
                            room[q + c4] += v4
                            room[q + c5] += v5
                    at += C
            for h in range(H):
                start, into = (h + one) * wall + C, n * image + h * line
                for k in range(line):
                    by_x[into + k] = room[start + k]

    return Transforms(compiled(inputs), compiled(outputs), compiled(by_inputs))
