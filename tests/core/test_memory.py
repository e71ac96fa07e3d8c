"""What was freed goes back to the system."""

from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from raysim.core import memory

libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def resident() -> int:
    """Bytes that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.skipif(not hasattr(libc, "malloc_trim"), reason="asks glibc")
def test_freed_blocks_below_one_that_is_used_are_returned():
    assert libc is not None
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    memory.give_back()
    blocks = [libc.malloc(100_000) for _ in range(1000)]
    for block in blocks:
        ctypes.memset(block, 1, 100_000)
    for block in blocks[:-1]:
        libc.free(block)
    kept = resident()
    memory.give_back()
    assert resident() < kept - 50_000_000
    libc.free(blocks[-1])


def test_so_does_what_arrow_keeps(monkeypatch):
    released = []
    pool = SimpleNamespace(release_unused=lambda: released.append(True))
    monkeypatch.setitem(sys.modules, "pyarrow", SimpleNamespace(default_memory_pool=lambda: pool))
    memory.give_back()
    assert released == [True]
    monkeypatch.delitem(sys.modules, "pyarrow")
    memory.give_back()
