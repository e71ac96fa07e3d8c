"""Loops that numba compiles for this processor, and memory for them.

Compiled code is kept on disk beside the source, or where the user's caches are, for later processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]

LINE = 64
"""Bytes of a line of the cache."""


def compiled(loop: Callable[..., Any]) -> Any:
    """``loop``, compiled for each type of its arguments when it is first called with them.

    What it takes from the function around it are constants of the compiler. Sums keep their order, so that bits do not
    depend on how loops are cut into vectors; a product and a sum may be one operation.
    """
    options = {"fastmath": {"contract"}, "error_model": "numpy"}
    try:
        return njit(cache=True, **options)(loop)
    except RuntimeError:  # there is no folder that numba may write into
        return njit(**options)(loop)


def memory(shape: tuple[int, ...], dtype: Any) -> Array:
    """Zeros of ``shape`` that begin with a line of the cache: the loops' vectors are as long as one."""
    whole = np.zeros(math.prod(shape) * np.dtype(dtype).itemsize + LINE, np.uint8)
    first = -whole.ctypes.data % LINE
    lines: Array = whole[first : first + len(whole) - LINE].view(dtype).reshape(shape)
    return lines
