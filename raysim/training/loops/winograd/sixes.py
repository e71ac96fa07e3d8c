"""Six numbers at equal distances, as one dimension of a tile has them."""

from __future__ import annotations

import numpy as np

from raysim.training.loops.writing import inlined

_TWO, _THREE, _FOUR, _FIVE = (np.uint64(k) for k in (2, 3, 4, 5))  # without a sign, see winograd.inputs


@inlined
def six_of(array, first, apart):  # type: ignore[no-untyped-def]
    """Those of ``array`` from ``first`` on."""
    return (
        array[first],
        array[first + apart],
        array[first + _TWO * apart],
        array[first + _THREE * apart],
        array[first + _FOUR * apart],
        array[first + _FIVE * apart],
    )


@inlined
def put_six(numbers, array, first, apart):  # type: ignore[no-untyped-def]
    """Store ``numbers`` there."""
    array[first], array[first + apart], array[first + _TWO * apart] = numbers[0], numbers[1], numbers[2]
    array[first + _THREE * apart], array[first + _FOUR * apart] = numbers[3], numbers[4]
    array[first + _FIVE * apart] = numbers[5]
