"""The memory of a GPU: how much a process may take, how many hospitals fit into a call, and rows cached on the GPU."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

USED = 0.8
"""Share of a process's free memory that is planned with; fragmentation and CUDA itself take the rest."""

STALE = 4
"""Number of requests, as a multiple of the cached copies, after which a copy that was not requested is stale."""

_shares: dict[int, float] = {}
"""The share of each device that this process may take, if less than all."""


class Memory(Protocol):
    """A device's memory, in bytes."""

    def free(self) -> int:
        """Return the bytes that this process may still allocate."""
        ...

    def peak(self, run: Callable[[], object]) -> int:
        """Return the largest number of bytes allocated at once by ``run``."""
        ...

    def release(self) -> None:
        """Return cached memory to the device."""
        ...


class CudaMemory:
    """The memory of a CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self._device = torch.cuda.current_device() if device.index is None else device.index

    def free(self) -> int:
        """See :class:`Memory`."""
        free, total = torch.cuda.mem_get_info(self._device)
        reserved, held = torch.cuda.memory_reserved(self._device), torch.cuda.memory_allocated(self._device)
        return room(free, total, reserved, held, _shares.get(self._device, 1.0))

    def peak(self, run: Callable[[], object]) -> int:
        """See :class:`Memory`."""
        torch.cuda.reset_peak_memory_stats(self._device)
        before = torch.cuda.memory_allocated(self._device)
        run()
        return torch.cuda.max_memory_allocated(self._device) - before

    def release(self) -> None:
        """See :class:`Memory`."""
        torch.cuda.empty_cache()


class Resident:
    """Copies of hospitals' constant rows on the device, cached for as long as the original memory exists.

    Copies beyond ``limit`` bytes are not cached, but sent at each call. A copy is dropped for new ones if it was not
    requested for a long time (:data:`STALE`), such as after the end of its run.
    """

    def __init__(self, device: torch.device, limit: float = math.inf) -> None:
        self._device, self._limit, self._bytes = device, limit, 0
        # In order of the last request, whose number is stored with each copy.
        self._held: dict[Hashable, tuple[weakref.ref[Any], Tensor, int]] = {}
        self._requests = 0

    @staticmethod
    def on(device: torch.device, memory: Memory | None) -> Resident:
        """Return a cache in half of the free ``memory`` of a device; None: without a limit."""
        return Resident(device, math.inf if memory is None else memory.free() / 2)

    def __call__(self, array: NDArray[Any], dtype: np.dtype[Any]) -> Tensor:
        """Return ``array`` on the device as ``dtype``; it is sent only at the first request for this part of memory."""
        owner = array
        while isinstance(owner.base, np.ndarray):  # each round may bring a new view of the federation's rows
            owner = owner.base
        key = (array.ctypes.data, array.shape, array.strides, array.dtype.str)
        self._requests += 1
        held = self._held.pop(key, None)
        if held is not None and held[0]() is owner:
            self._held[key] = held[0], held[1], self._requests
            return held[1]
        if held is not None:
            self._bytes -= held[1].nbytes
        copy = torch.from_numpy(np.array(array, dtype)).to(self._device)
        self._make_room(copy.nbytes)
        if self._bytes + copy.nbytes <= self._limit:
            self._held[key] = weakref.ref(owner, lambda _: self._forget(key)), copy, self._requests
            self._bytes += copy.nbytes
        return copy

    def _make_room(self, size: int) -> None:
        """Drop stale copies, the oldest first, until ``size`` more bytes are within the limit."""
        while self._held and self._bytes + size > self._limit:
            oldest, (_, _, last) = next(iter(self._held.items()))
            if self._requests - last <= STALE * len(self._held):
                return
            self._forget(oldest)

    def clear(self) -> None:
        """Drop all copies."""
        self._held.clear()
        self._bytes = 0

    def _forget(self, key: Hashable) -> None:
        held = self._held.pop(key, None)
        if held is not None:
            self._bytes -= held[1].nbytes


def memory_of(device: torch.device) -> Memory | None:
    """Return the memory of a GPU; None for devices whose memory is not planned."""
    return CudaMemory(device) if device.type == "cuda" else None


def claim(share: float) -> None:
    """Limit this process to the fraction ``share`` of its GPU's memory; 1 or more sets no limit."""
    if share < 1:
        device = torch.cuda.current_device()
        torch.cuda.set_per_process_memory_fraction(share, device)
        _shares[device] = share


def room(free: int, total: int, reserved: int, held: int, share: float) -> int:
    """Return the bytes this process may still allocate on a GPU with ``total`` bytes, ``free`` of them unused.

    The process has ``reserved`` bytes, of which tensors occupy ``held``, and may take the part ``share`` of the card.
    """
    return max(0, min(free + reserved, int(share * total)) - held)


def fitting(needs: Sequence[int], free: float) -> int:
    """Return how many hospitals go into a call: the first whose ``needs`` fit into ``free`` bytes; at least 1."""
    return max(1, int(np.searchsorted(np.cumsum(needs), free, side="right")))


def gibibytes(size: float) -> str:
    """``size`` bytes for a reader.

    >>> gibibytes(3.1 * 2**30)
    '3.1 GiB'
    """
    return f"{size / 2**30:.3g} GiB"
