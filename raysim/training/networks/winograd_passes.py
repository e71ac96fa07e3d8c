"""A layer's passes by Winograd's convolution: loops of tiles with BLAS's products of matrices between them.

A few rows of tiles are computed at once. The products are scipy's BLAS, which adds to what it writes into if it is told
to: numpy's product would be added in a pass of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  its functions are looked up by name
from numba.extending import get_cython_function_address

from raysim.training.networks.compiled import call, compiled
from raysim.training.networks.winograd import POINTS, plane

_NO, _TURNED = (np.int64(ord(letter)) for letter in "NT")
_plane = compiled(plane)


class Sizes(NamedTuple):
    """The numbers of a layer."""

    rows: int
    """Rows of tiles of all images."""
    at_once: int
    """How many of them are computed at once, at most."""
    columns: int
    """Tiles in each."""
    channels: int
    """Channels of its images."""
    width: int
    """Channels of their tiles: some more may be zero."""
    maps: int
    """Channels of its outputs."""


class Loops(NamedTuple):
    """Addresses of the loops of a layer, see :func:`raysim.training.networks.compiled.by_address`."""

    product: int
    """BLAS's general product of matrices, ``sgemm`` or ``dgemm``."""
    inputs: int
    outputs: int
    by_inputs: int
    by_outputs: int


def product(dtype: Any) -> int:
    """The address of BLAS's product of matrices of this type, float32 or float64."""
    letter = {4: "s", 8: "d"}[np.dtype(dtype).itemsize]
    address: int = get_cython_function_address("scipy.linalg.cython_blas", f"{letter}gemm")
    return address


@compiled
def forward(loops, sizes, x, of_x, bias, y, sums, room, lines, strip, tiles_x, tiles_y, factors, numbers, reals):  # type: ignore[no-untyped-def]
    """Images ``x`` to ``y``; see :class:`raysim.training.networks.winograd.Transforms`. All arrays are flat."""
    places = sizes.at_once * sizes.columns
    for low in range(0, sizes.rows, sizes.at_once):
        high = min(low + sizes.at_once, sizes.rows)
        call(loops.inputs, (_at(x), _at(of_x), low, high, _at(room), _at(strip), _at(tiles_x)))
        tiles, width, maps = (high - low) * sizes.columns, sizes.width, sizes.maps
        apart = _plane(places, width), _plane(width, maps), _plane(places, maps)
        _multiply(loops.product, numbers, reals, False, False, tiles, width, maps, tiles_x, factors, tiles_y, apart)
        call(loops.outputs, (_at(tiles_y), _at(bias), low, high, _at(lines), _at(strip), _at(y), _at(sums)))


@compiled
def backward(  # type: ignore[no-untyped-def]
    loops, sizes, by_norm, of_norm, x, of_x, y, by_bias, room, lines, strip, tiles_x, tiles_y, by_factors,
    by_images, by_x, sums, turned, room_by, numbers, reals,
):
    """The gradients by the bias, by the weights' points ``by_factors``, and, if ``by_images``, by ``x``."""
    places, channels, width, maps = sizes.at_once * sizes.columns, sizes.channels, sizes.width, sizes.maps
    of_x_plane, of_y_plane = _plane(places, width), _plane(places, maps)
    for low in range(0, sizes.rows, sizes.at_once):
        high = min(low + sizes.at_once, sizes.rows)
        tiles = (high - low) * sizes.columns
        call(
            loops.by_outputs,
            (_at(by_norm), _at(y), _at(of_norm), low, high, _at(lines), _at(strip), _at(tiles_y), _at(by_bias)),
        )
        # Computed again: to keep them from forward on would take more memory than the network's images do.
        call(loops.inputs, (_at(x), _at(of_x), low, high, _at(room), _at(strip), _at(tiles_x)))
        apart = of_x_plane, of_y_plane, _plane(width, maps)
        _multiply(loops.product, numbers, reals, True, low > 0, width, tiles, maps, tiles_x, tiles_y, by_factors, apart)
        if by_images:
            # Into the place of the inputs' tiles, which are not needed any more.
            apart = of_y_plane, _plane(maps, channels), _plane(places, channels)
            _multiply(loops.product, numbers, reals, False, False, tiles, maps, channels, tiles_y, turned, tiles_x, apart)
            call(
                loops.by_inputs,
                (_at(tiles_x), _at(x), low, high, _at(room_by), _at(strip), _at(by_x), _at(sums)),
            )


@compiled
def _at(array):  # type: ignore[no-untyped-def]
    return array.ctypes.data


@compiled
def _multiply(product, numbers, factors, turned, added, rows, inner, columns, a, b, result, apart):  # type: ignore[no-untyped-def]
    """``result = a b`` at each point, or ``a' b`` if ``turned``, ``added`` to it or not; ``apart``: their planes.

    ``a [rows, inner]``, or ``[inner, rows]`` if ``turned``, and ``b [inner, columns]``, ``result [rows, columns]``.
    """
    # BLAS has the first index next to each other: there it is b' a'. It takes all numbers by their addresses.
    letter, next_to = (_TURNED, rows) if turned else (_NO, inner)
    numbers[:] = _NO, letter, columns, rows, inner, columns, next_to, columns
    factors[:] = 1, 1 if added else 0
    n, f, size = _at(numbers), _at(factors), a.itemsize
    for k in range(POINTS):
        at = _at(b) + k * apart[1] * size, _at(a) + k * apart[0] * size, _at(result) + k * apart[2] * size
        call(
            product,
            (n, n + 8, n + 16, n + 24, n + 32, f, at[0], n + 40, at[1], n + 48, f + size, at[2], n + 56),
        )
