"""What this machine has of memory: refuses what is known to need more, and gives back what was freed."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from raysim.core.errors import ResourceError

_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def of_this_machine() -> int:
    """Bytes of memory: those of the machine, or fewer where a container is given fewer."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _LIMITS:
        try:
            total = min(total, int(path.read_text()))
        except (OSError, ValueError):  # there is none, or it says "max"
            continue
    return total


def check(needed: int, what: str, remedy: str) -> None:
    """Raise ``ResourceError`` where ``needed`` bytes are more than this machine has.

    ``what`` begins with the field and its value, and goes before "needs ... bytes".
    """
    available = of_this_machine()
    if needed > available:
        raise ResourceError(f"{what} needs {needed:,} bytes of memory, and this machine has {available:,}; {remedy}")


def give_back() -> None:
    """Return memory that this process has freed to the system; after long work, allocators keep a lot of it."""
    arrow = sys.modules.get("pyarrow")  # has a pool of its own, where it was imported
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):  # glibc
        libc.malloc_trim(0)
