"""A layer's passes: loops over tiles, with BLAS's products of matrices between them.

A few rows of tiles are computed at once, so that they stay in a core's cache. The products are those of scipy's BLAS,
which adds to what is there if it is told so; numpy's would have to be added in a pass of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import get_cython_function_address

from raysim.training.networks.compiled import call, compiled
from raysim.training.networks.winograd import points
from raysim.training.networks.written import Array

_NO, _TURNED = (np.int64(ord(letter)) for letter in "NT")
_POINTS, _plane = points.POINTS, compiled(points.plane)


class Loops(NamedTuple):
    """The addresses of what a layer calls; see :func:`raysim.training.networks.compiled.call`."""

    product: int
    """BLAS's product of matrices, see :func:`product`."""
    inputs: int
    """Of :func:`raysim.training.networks.winograd.inputs.inputs`."""
    outputs: int
    """Of :func:`raysim.training.networks.winograd.outputs.outputs`."""
    by_inputs: int
    """Of :func:`raysim.training.networks.winograd.inputs.by_inputs`."""
    by_outputs: int
    """Of :func:`raysim.training.networks.winograd.outputs.by_outputs` or ``by_pooled``."""


class Sizes(NamedTuple):
    """The numbers of a layer."""

    at_once: int
    """Rows of tiles that are computed at once, at most."""
    columns: int
    """Tiles in each."""
    channels: int
    """Channels of the images."""
    width: int
    """Channels of their tiles: some more may be zero."""
    maps: int
    """Channels of the outputs."""


class Rooms(NamedTuple):
    """Memory that the passes compute in; for the names of the first, see the package."""

    room: Array
    """Of ``inputs``."""
    room_by: Array
    """Of ``by_inputs``."""
    room_y: Array
    """Of ``outputs`` and their derivatives."""
    strip: Array
    tiles: Array
    """Points of the inputs' tiles, then derivatives by them."""
    tiles_y: Array
    """Points of the outputs' tiles, or derivatives by them."""
    weights: Array
    """Points of the weights ``[36, width, maps]``, or the derivatives by them."""
    turned: Array
    """Points of the weights ``[36, maps, channels]``."""
    numbers: Array
    """Eight whole numbers for BLAS."""
    factors: Array
    """Two factors for BLAS."""


def product(dtype: Any) -> int:
    """The address of BLAS's product of matrices in this precision, float32 or float64."""
    letter = {4: "s", 8: "d"}[np.dtype(dtype).itemsize]
    address: int = get_cython_function_address("scipy.linalg.cython_blas", f"{letter}gemm")
    return address


@compiled
def forward(loops, sizes, rooms, rows, x, of_x, bias, y, sums):  # type: ignore[no-untyped-def]
    """``max(convolution, 0)`` of images ``x`` of so many ``rows`` of tiles; the weights' points are in ``rooms``."""
    for low in range(0, rows, sizes.at_once):
        high = min(low + sizes.at_once, rows)
        tiles, places = (high - low) * sizes.columns, sizes.at_once * sizes.columns
        given = _at(x), _at(of_x), low, high, _at(rooms.room), _at(rooms.strip), _at(rooms.tiles)
        call(loops.inputs, given)
        shape = tiles, sizes.width, sizes.maps
        apart = _plane(places, sizes.width), _plane(sizes.width, sizes.maps), _plane(places, sizes.maps)
        _multiply(loops, rooms, False, False, shape, apart, rooms.tiles, rooms.weights, rooms.tiles_y)
        call(
            loops.outputs,
            (_at(rooms.tiles_y), _at(bias), low, high, _at(rooms.room_y), _at(rooms.strip), _at(y), _at(sums)),
        )


@compiled
def backward(loops, sizes, rooms, rows, by_norm, of_norm, x, of_x, y, by_images, by_x, sums, by_bias):  # type: ignore[no-untyped-def]
    """The derivatives by ``bias``, by the weights' points, in ``rooms``, and, if ``by_images``, by ``x``."""
    for low in range(0, rows, sizes.at_once):
        high = min(low + sizes.at_once, rows)
        tiles, places = (high - low) * sizes.columns, sizes.at_once * sizes.columns
        of_tiles, of_tiles_y = _plane(places, sizes.width), _plane(places, sizes.maps)
        room, strip = _at(rooms.room_y), _at(rooms.strip)
        call(
            loops.by_outputs,
            (_at(by_norm), _at(y), _at(of_norm), low, high, room, strip, _at(rooms.tiles_y), _at(by_bias)),
        )
        # Computed again: to keep them from forward on would take more memory than the network's images do.
        call(loops.inputs, (_at(x), _at(of_x), low, high, _at(rooms.room), strip, _at(rooms.tiles)))
        shape, apart = (sizes.width, tiles, sizes.maps), (of_tiles, of_tiles_y, _plane(sizes.width, sizes.maps))
        _multiply(loops, rooms, True, low > 0, shape, apart, rooms.tiles, rooms.tiles_y, rooms.weights)
        if by_images:
            # Into the place of the inputs' tiles, which are not needed any more.
            shape = tiles, sizes.maps, sizes.channels
            apart = of_tiles_y, _plane(sizes.maps, sizes.channels), _plane(places, sizes.channels)
            _multiply(loops, rooms, False, False, shape, apart, rooms.tiles_y, rooms.turned, rooms.tiles)
            call(
                loops.by_inputs,
                (_at(rooms.tiles), _at(x), low, high, _at(rooms.room_by), strip, _at(by_x), _at(sums)),
            )


@compiled
def _at(array):  # type: ignore[no-untyped-def]
    return array.ctypes.data


@compiled
def _multiply(loops, rooms, turned, added, shape, apart, a, b, result):  # type: ignore[no-untyped-def]
    """``result = a b`` at each point, or ``a' b`` if ``turned``; ``added`` to what is there, or not.

    ``shape``: rows of ``result``, the length of a sum, and columns. ``apart``: from point to point of each.
    """
    rows, inner, columns = shape
    # BLAS takes a matrix by columns: rows as they are here are the columns of b' a'. It takes numbers by
    # address, whole ones of 32 or 64 bits: here they are of 64, whose low half is first.
    numbers, factors = rooms.numbers, rooms.factors
    letter, length = (_TURNED, rows) if turned else (_NO, inner)
    numbers[:] = _NO, letter, columns, rows, inner, columns, length, columns
    factors[:] = 1, 1 if added else 0
    n, f, size = _at(numbers), _at(factors), a.itemsize
    for k in range(_POINTS):
        at_a, at_b, at_result = (
            _at(a) + k * apart[0] * size,
            _at(b) + k * apart[1] * size,
            _at(result) + k * apart[2] * size,
        )
        shapes = n, n + 8, n + 16, n + 24, n + 32
        call(loops.product, (*shapes, f, at_b, n + 40, at_a, n + 48, f + size, at_result, n + 56))
