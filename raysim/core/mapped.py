"""Arrays in memory-mapped files, which may be larger than a process's memory."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def zeros(shape: tuple[int, ...], dtype: DTypeLike, path: Path | None) -> NDArray[Any]:
    """Return an array of zeros in memory, or mapped to the new ``.npy`` file ``path``.

    Raises ``OSError`` if the disk has no space for the whole file. All space is allocated now: on a full disk, writing
    to the array later would kill the process with SIGBUS.
    """
    if path is None:
        return np.zeros(shape, dtype)
    if 0 in shape:  # nothing can be mapped
        np.save(path, np.zeros(shape, dtype))
        return np.zeros(shape, dtype)
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape)
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, array.offset + array.nbytes)
    return np.asarray(array)


def is_at(array: NDArray[Any], path: Path) -> bool:
    """Return whether an array is mapped from the file ``path``."""
    file = getattr(array.base, "filename", None)
    return file is not None and Path(file) == path.resolve()  # numpy resolves links


def release(array: NDArray[Any]) -> None:
    """Release the pages of a mapped array from this process's memory; the file keeps its content.

    Does nothing if the array is not mapped.
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        if getattr(base, "mode", "") == "c":  # copy-on-write: the file does not have the changes
            return
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)
