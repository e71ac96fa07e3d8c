"""Refuses what is known to need more memory than this machine has, before it is allocated."""

from __future__ import annotations

import os
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
