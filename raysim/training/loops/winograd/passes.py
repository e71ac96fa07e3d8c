"""A layer's passes: loops over tiles, with BLAS's products of matrices between them.

A few rows of tiles are computed at once, so that they stay in a core's cache. The products are those of scipy's BLAS,
which adds to what is there if it is told so; numpy's would have to be added in a pass of its own. Here arrays are only
addresses, which others are given. ``t`` is a :class:`Table` with room for eight numbers more, which BLAS is given.
"""

from __future__ import annotations

import numpy as np

from raysim.training.loops.blas_product import NO, YES, describe, product
from raysim.training.loops.winograd.points import POINTS
from raysim.training.loops.winograd.table import Table
from raysim.training.loops.writing import call, inlined

(
    _PRODUCT,
    _INPUTS,
    _OUTPUTS,
    _BY_INPUTS,
    _BY_OUTPUTS,
    _AT_ONCE,
    _COLUMNS,
    _CHANNELS,
    _WIDTH,
    _MAPS,
    _OF_TILES,
    _OF_TILES_Y,
    _OF_WEIGHTS,
    _OF_TURNED,
    _OF_BY_TILES,
    _SIZE,
    _FACTORS,
    _ROOM,
    _ROOM_BY,
    _ROOM_Y,
    _STRIP,
    _TILES,
    _TILES_Y,
    _WEIGHTS,
    _TURNED,
    _NUMBERS,
) = (np.uint64(k) for k in range(len(Table._fields) + 1))
_ZERO, _POINTS = np.uint64(0), np.uint64(POINTS)


def forward(t, rows, x, of_x, bias, y, sums):  # type: ignore[no-untyped-def]
    """``max(convolution, 0)`` of images ``x`` of so many ``rows`` of tiles; the weights' points are there."""
    low = _ZERO
    while low < rows:
        high = min(low + t[_AT_ONCE], rows)
        call(t[_INPUTS], (x, of_x, low, high, t[_ROOM], t[_STRIP], t[_TILES]))
        shape = (high - low) * t[_COLUMNS], t[_WIDTH], t[_MAPS]
        apart = t[_OF_TILES], t[_OF_WEIGHTS], t[_OF_TILES_Y]
        _multiply(t, NO, False, shape, apart, t[_TILES], t[_WEIGHTS], t[_TILES_Y])
        call(t[_OUTPUTS], (t[_TILES_Y], bias, low, high, t[_ROOM_Y], t[_STRIP], y, sums))
        low = high


def backward(t, rows, by_norm, of_norm, x, of_x, y, by_images, by_x, sums, by_bias):  # type: ignore[no-untyped-def]
    """The derivatives by ``bias``, by the weights' points, and, if ``by_images``, by ``x``."""
    low = _ZERO
    while low < rows:
        high = min(low + t[_AT_ONCE], rows)
        tiles, strip = (high - low) * t[_COLUMNS], t[_STRIP]
        call(t[_BY_OUTPUTS], (by_norm, y, of_norm, low, high, t[_ROOM_Y], strip, t[_TILES_Y], by_bias))
        # Computed again: to keep them from forward on would take more memory than the network's images do.
        call(t[_INPUTS], (x, of_x, low, high, t[_ROOM], strip, t[_TILES]))
        shape, apart = (t[_WIDTH], tiles, t[_MAPS]), (t[_OF_TILES], t[_OF_TILES_Y], t[_OF_WEIGHTS])
        _multiply(t, YES, low > _ZERO, shape, apart, t[_TILES], t[_TILES_Y], t[_WEIGHTS])
        if by_images > _ZERO:
            # Into the place of the inputs' tiles, which are not needed any more.
            shape, apart = (tiles, t[_MAPS], t[_CHANNELS]), (t[_OF_TILES_Y], t[_OF_TURNED], t[_OF_BY_TILES])
            _multiply(t, NO, False, shape, apart, t[_TILES_Y], t[_TURNED], t[_TILES])
            call(t[_BY_INPUTS], (t[_TILES], x, low, high, t[_ROOM_BY], strip, by_x, sums))
        low = high


@inlined
def _multiply(t, turned, added, shape, apart, a, b, result):  # type: ignore[no-untyped-def]
    """``result = a b`` at each point, or ``a' b`` if ``turned``; ``added`` to what is there, or not.

    ``shape``: rows of ``result``, the length of a sum, and columns. ``apart``: from point to point of each.
    """
    rows, inner, columns = shape
    # By columns, rows as they are here are the columns of b' a'.
    describe(t, _NUMBERS, NO, turned, (columns, rows, inner), (columns, rows if turned == YES else inner, columns))
    one, kept = t[_FACTORS], t[_FACTORS] if added else t[_FACTORS] + t[_SIZE]
    for k in range(_POINTS):
        at_a, at_b, at_result = (
            a + k * apart[0] * t[_SIZE],
            b + k * apart[1] * t[_SIZE],
            result + k * apart[2] * t[_SIZE],
        )
        product(t[_PRODUCT], t, _NUMBERS, one, at_b, at_a, kept, at_result)
