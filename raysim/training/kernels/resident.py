"""Hospitals' rows on a GPU, sent there once."""

from __future__ import annotations

import math
import weakref
from collections.abc import Hashable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Resident:
    """Copies of hospitals' constant rows on the device, kept for as long as the original memory exists.

    Those beyond ``limit`` bytes are not kept, and sent at each call.
    """

    def __init__(self, device: torch.device, limit: float = math.inf) -> None:
        self._device, self._limit, self._bytes = device, limit, 0
        self._held: dict[Hashable, tuple[weakref.ref[Any], Tensor]] = {}

    def __call__(self, array: NDArray[Any], dtype: np.dtype[Any]) -> Tensor:
        """``array`` on the device as ``dtype``; sent only the first time that this part of memory is asked for."""
        owner = array
        while isinstance(owner.base, np.ndarray):  # each round may bring a new view of the federation's rows
            owner = owner.base
        key = (array.ctypes.data, array.shape, array.strides, array.dtype.str)
        held = self._held.get(key)
        if held is not None and held[0]() is owner:
            return held[1]
        self._forget(key)
        copy = torch.from_numpy(np.array(array, dtype)).to(self._device)
        if self._bytes + copy.nbytes <= self._limit:
            self._held[key] = weakref.ref(owner, lambda _: self._forget(key)), copy
            self._bytes += copy.nbytes
        return copy

    def clear(self) -> None:
        """Forget all copies."""
        self._held.clear()
        self._bytes = 0

    def _forget(self, key: Hashable) -> None:
        held = self._held.pop(key, None)
        if held is not None:
            self._bytes -= held[1].nbytes
