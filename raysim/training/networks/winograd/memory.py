"""Memory that a thread's convolutions compute in."""

from __future__ import annotations

import threading
from itertools import accumulate
from typing import Any

import numpy as np

from raysim.training.networks.written import Array

LINE = 64
"""Bytes of a line of the cache."""


class Memory(threading.local):
    """What the loops of a thread compute in, one after the other: the next find it in the processor's caches."""

    _bytes = np.empty(0, np.uint8)

    def take(self, dtype: Any, *lengths: int) -> list[Array]:
        """Arrays of such lengths, with anything in them, until the next call. Each begins with a line of the cache."""
        sizes = [-(-length * np.dtype(dtype).itemsize // LINE) * LINE for length in lengths]
        if len(self._bytes) < sum(sizes) + LINE:
            self._bytes = np.empty(sum(sizes) + LINE, np.uint8)
        starts = accumulate(sizes[:-1], initial=-self._bytes.ctypes.data % LINE)
        return [
            self._bytes[start : start + size].view(dtype)[:length]
            for start, size, length in zip(starts, sizes, lengths, strict=True)
        ]


MEMORY = Memory()
