"""Loops that numba compiles for this processor, and memory for them.

Compiled code is kept on disk beside the source, or where the user's caches are, for later processes. A loop that calls
another finds it there only if the other is a module's, and not made by the same function. Loops have no annotations:
numba tells types from what they are called with.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from raysim.training.networks.written import Array

LINE = 64
"""Bytes of a line of the cache."""
_OPTIONS = {"fastmath": {"contract"}, "error_model": "numpy"}


def compiled(loop: Callable[..., Any]) -> Any:
    """``loop``, compiled for each type of its arguments when it is first called with them.

    What it takes from the function around it are constants of the compiler. Sums keep their order, so that bits do not
    depend on how loops are cut into vectors; a product and a sum may be one operation.
    """
    try:
        return njit(cache=True, **_OPTIONS)(loop)
    except RuntimeError:  # there is no folder that numba may write into
        return njit(**_OPTIONS)(loop)


def inlined(loop: Callable[..., Any]) -> Any:
    """``loop`` as a part of each that calls it, so that what it is given are constants there too."""
    return njit(inline="always", **_OPTIONS)(loop)


def memory(shape: tuple[int, ...], dtype: Any) -> Array:
    """Zeros of ``shape`` that begin with a line of the cache: the loops' vectors are as long as one."""
    whole = np.zeros(math.prod(shape) * np.dtype(dtype).itemsize + LINE, np.uint8)
    first = -whole.ctypes.data % LINE
    lines: Array = whole[first : first + len(whole) - LINE].view(dtype).reshape(shape)
    return lines
