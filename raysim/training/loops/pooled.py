"""A convolution of 3 x 3, max pooling of 2 x 2 and ReLU, and their derivatives, a row of what is pooled at a time.

``t`` is a table of whole numbers: :data:`TABLE`, then room for what BLAS is given. ``f`` holds 1 and 0. ``images`` are
``[high, channels, wide, b]`` with their border, and the batch is last, so that what lies side by side is copied and
compared at once. A pooled column sees four columns of the images. A row of ``patches [high, 4 channels + 1, each]`` has
these for all ``each = columns * b`` that are pooled, and ones, which biases multiply; three rows that follow each other
are one matrix. Its product gives both columns that are pooled, where a quarter of the factors are zeros; as these stand
elsewhere for one than for the other, columns over equal patches may differ in their last bits.
"""

from __future__ import annotations

import numpy as np

from raysim.training.loops.blas_product import NO, YES, multiply
from raysim.training.loops.writing import at, called

TABLE = ("bytes", "product", "high", "channels", "wide", "batch", "border", "rows", "columns", "maps", "behind")
"""Bytes of a number; BLAS's product; the images with their border; what is pooled, and its border in what follows."""

_BYTES, _PRODUCT, _HIGH, _CHANNELS, _WIDE, _BATCH, _BORDER, _ROWS, _COLUMNS, _MAPS, _BEHIND = (
    np.uint64(k) for k in range(len(TABLE))
)
_END = np.uint64(len(TABLE))
_0, _1, _2, _3, _4, _6, _9 = (np.uint64(k) for k in (0, 1, 2, 3, 4, 6, 9))
_CLOSED = np.uint8(4)
"""In ``best``: ReLU has given 0. Else the number of the pooled four that is the largest, row by row."""


@called
def _height(t):  # type: ignore[no-untyped-def]
    """The rows of a matrix of patches."""
    return _4 * t[_CHANNELS] + _1


def forward(t, f, images, weight, bias, factors, patches, z, best, following):  # type: ignore[no-untyped-def]
    """Fill ``following``, and ``best [rows, maps, each]`` with which of the four that are pooled was the largest.

    ``z`` is memory for two rows of the convolution, ``factors`` for its matrix ``[2 maps, 3 (4 channels + 1)]``.
    """
    maps, columns, b, border = t[_MAPS], t[_COLUMNS], t[_BATCH], t[_BEHIND]
    each, height, size = columns * b, _height(t), t[_BYTES]
    wide = columns + _2 * border
    _arrange(t, weight, bias, factors)
    row = _2 * maps * each
    for r in range(t[_ROWS]):
        for k in range(_0 if r == _0 else _2, _4):
            _copy(t, images, patches, _2 * r + k)
        for k in range(_2):
            seen, into = at(patches) + (_2 * r + k) * height * each * size, at(z) + k * row * size
            shape, apart = (each, _2 * maps, _3 * height), (each, _3 * height, each)
            _multiply(t, f, NO, shape, seen, at(factors), False, into, apart)
        for m in range(maps):
            begin, first = ((r + border) * maps + m) * wide * b + border * b, (r * maps + m) * each
            left, right = m * each, (maps + m) * each
            for e in range(each):
                _pool(z, left + e, right + e, row, best, first + e, following, begin + e, f[_1])


@called
def _multiply(t, f, turn, shape, a, b, added, c, apart):  # type: ignore[no-untyped-def]
    """``c = a b``, or ``c = a b + c``; see :mod:`raysim.training.loops.blas_product`."""
    kept = at(f) if added else at(f) + t[_BYTES]
    multiply(t[_PRODUCT], t, _END, (turn, NO), shape, at(f), a, b, kept, c, apart)


@called
def _arrange(t, weight, bias, factors):  # type: ignore[no-untyped-def]
    """The convolution's matrix: the right one of two neighbours sees what lies a column further."""
    maps, channels, height = t[_MAPS], t[_CHANNELS], _height(t)
    side = maps * _3 * height
    for m in range(maps):
        for c in range(channels):
            for k in range(_9):
                value = weight[(m * channels + c) * _9 + k]
                place = (m * _3 + k // _3) * height + k % _3 * channels + c
                factors[place] = value
                factors[side + place + channels] = value
        place = m * _3 * height + height - _1
        factors[place] = factors[side + place] = bias[m]


@called
def _copy(t, images, patches, row):  # type: ignore[no-untyped-def]
    """Fill a row of the patches, but for the ones."""
    columns, channels, b, wide = t[_COLUMNS], t[_CHANNELS], t[_BATCH], t[_WIDE]
    for k in range(_4):
        for c in range(channels):
            into = (row * _height(t) + k * channels + c) * columns * b
            source = ((row * channels + c) * wide + k) * b
            for j in range(columns):
                for i in range(b):
                    patches[into + j * b + i] = images[source + _2 * j * b + i]


@called
def _pool(z, left, right, row, best, place, outputs, into, zero):  # type: ignore[no-untyped-def]
    """What is not a number is the largest; of equals that of the upper row, and then the left one; as in torch."""
    a, b, c, d = z[left], z[right], z[row + left], z[row + right]
    upper = b if b > a or b != b else a
    lower = d if d > c or d != d else c
    largest = lower if lower > upper or lower != lower else upper
    in_upper = np.uint8(1) if b > a or b != b else np.uint8(0)
    in_lower = np.uint8(3) if d > c or d != d else np.uint8(2)
    which = in_lower if lower > upper or lower != lower else in_upper
    best[place] = _CLOSED if largest <= zero else which
    outputs[into] = zero if largest <= zero else largest


def backward(  # type: ignore[no-untyped-def]
    t, f, by_outputs, by_row, by_map, needed, best, patches, z, by_factors, factors, turned, by_patches, by_images
):
    """Fill ``by_factors [3 (4 channels + 1), 2 maps]``, and ``by_images`` where it is ``needed``.

    ``by_row`` and ``by_map``: how far rows, and maps, of ``by_outputs`` lie apart; the ``each`` numbers of both lie
    side by side. ``z`` is memory for the gradient of all rows of the convolution, with two rows of zeros before and
    after; ``turned`` for the matrix ``[4 channels, 6 maps]``, ``by_patches`` for a row.
    """
    maps, columns, b, size = t[_MAPS], t[_COLUMNS], t[_BATCH], t[_BYTES]
    each, height, rows, zero = columns * b, _height(t), t[_ROWS], f[_1]
    row = _2 * maps * each
    if needed:
        _turn(t, factors, turned)
    for r in range(rows):
        here = (_2 + _2 * r) * row
        for m in range(maps):
            given, first = r * by_row + m * by_map, (r * maps + m) * each
            left, right = here + m * each, here + (maps + m) * each
            for k, into in enumerate((left, right, row + left, row + right)):
                _give(by_outputs, given, best, first, np.uint8(k), z, into, each, zero)
        for k in range(_2):
            seen, of_row = at(patches) + (_2 * r + k) * height * each * size, at(z) + (here + k * row) * size
            shape, apart = (_2 * maps, _3 * height, each), (each, each, _2 * maps)
            _multiply(t, f, YES, shape, of_row, seen, r + k > _0, at(by_factors), apart)
        if needed:
            for k in range(_2 if r + _1 < rows else _4):
                _give_back(t, f, turned, z, _2 * r + k, by_patches, by_images)


@called
def _give(by_outputs, given, best, first, which, z, into, n, zero):  # type: ignore[no-untyped-def]
    """Give the gradient to the neighbour ``which`` where that was the largest."""
    for e in range(n):
        value = by_outputs[given + e]
        z[into + e] = value if best[first + e] == which else zero


@called
def _turn(t, factors, turned):  # type: ignore[no-untyped-def]
    """The convolution's matrix for the way back, ``[4 channels, 3, 2, maps]``: its rows in the other order."""
    maps, height = t[_MAPS], _height(t)
    for side in range(_2):
        for m in range(maps):
            for k in range(_3):
                for c in range(height - _1):
                    place = ((c * _3 + _2 - k) * _2 + side) * maps + m
                    turned[place] = factors[((side * maps + m) * _3 + k) * height + c]


@called
def _give_back(t, f, turned, z, row, by_patches, by_images):  # type: ignore[no-untyped-def]
    """Fill a row of ``by_images [high, channels, wide, b]``, unless it is one of the border."""
    maps, columns, b, border = t[_MAPS], t[_COLUMNS], t[_BATCH], t[_BORDER]
    channels, wide, size = t[_CHANNELS], t[_WIDE], t[_BYTES]
    each = columns * b
    if row < border or row + border >= t[_HIGH]:
        return
    near, shape, apart = (
        at(z) + row * _2 * maps * each * size,
        (each, _4 * channels, _6 * maps),
        (each, _6 * maps, each),
    )
    _multiply(t, f, NO, shape, near, at(turned), False, at(by_patches), apart)
    for k in range(_2):
        for c in range(channels):
            into = ((row * channels + c) * wide + k) * b
            near_one, far = (k * channels + c) * each, ((k + _2) * channels + c) * each
            for i in range(b):
                by_images[into + i] = by_patches[near_one + i]
                by_images[into + _2 * each + i] = by_patches[far + each - b + i]
            for j in range(_1, columns):
                for i in range(b):
                    value = by_patches[near_one + j * b + i] + by_patches[far + (j - _1) * b + i]
                    by_images[into + _2 * j * b + i] = value


def by_parameters(t, by_factors, by_weight, by_bias):  # type: ignore[no-untyped-def]
    """The gradients ``[maps, channels, 3, 3]`` and ``[maps]`` from that by the convolution's matrix."""
    maps, channels, height = t[_MAPS], t[_CHANNELS], _height(t)
    for m in range(maps):
        for c in range(channels):
            for k in range(_9):
                left = (k // _3 * height + k % _3 * channels + c) * _2 * maps + m
                value = by_factors[left] + by_factors[left + (_2 * channels + _1) * maps]
                by_weight[(m * channels + c) * _9 + k] = value
        place = (height - _1) * _2 * maps + m
        by_bias[m] = by_factors[place] + by_factors[place + maps]
