"""Limits of this machine's memory: work that needs more is refused, and memory that Arrow has freed is returned."""

from __future__ import annotations

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
    """Return memory that Arrow has freed to the operating system.

    ``python -m benchmarks.million`` then needs 5.6 GiB at most; otherwise it needs 6.5 GiB.
    """
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
