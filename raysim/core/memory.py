"""Limits of this machine's memory: work that needs more is refused, and freed memory is returned."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from raysim.core.errors import ResourceError

_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def of_this_machine() -> int:
    """Return the bytes of memory of this machine, or the limit of its container if that is lower."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _LIMITS:
        try:
            total = min(total, int(path.read_text()))
        except (OSError, ValueError):  # there is none, or it says "max"
            continue
    return total


def check(needed: int, what: str, remedy: str) -> None:
    """Raise ``ResourceError`` if ``needed`` bytes are more than this machine has.

    ``what`` and ``remedy`` begin and end the message; ``what`` must begin with a configuration field and its value.
    """
    available = of_this_machine()
    if needed > available:
        raise ResourceError(f"{what} needs {needed:,} bytes of memory, and this machine has {available:,}; {remedy}")


def give_back() -> None:
    """Return freed memory to the operating system."""
    arrow = sys.modules.get("pyarrow")  # it has its own memory pool
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):  # glibc
        libc.malloc_trim(0)
