"""How a process of raysim's own computes: its threads, its products, and what it does with memory that it frees."""

from __future__ import annotations

import ctypes

from raysim.core import blas, host

# Of <malloc.h> of glibc: what M_TRIM_THRESHOLD and M_MMAP_THRESHOLD are called.
_TRIM, _MAP = -1, -3
_LARGEST_MAP = 2**25
"""The most bytes that glibc takes for ``_MAP``: larger pieces are always given back."""


def settle(threads: int, code: str | None) -> None:
    """At most ``threads`` compute threads from now on, products by OpenBLAS's ``code``, and no memory given back."""
    host.limit_threads(threads)
    blas.follow(code)
    keep_memory()


def keep_memory() -> None:
    """Let this process keep what it frees, and use it again.

    glibc gives pieces of more than 128 KiB back to the system, and gets them back empty, page by page: training of a
    network, whose steps each take and free the same megabytes, spends up to a quarter of its time on that. Its peak
    of memory is the same. Elsewhere than on glibc nothing happens.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "gnu_get_libc_version"):
        library.mallopt(_TRIM, 2**31 - 1)
        library.mallopt(_MAP, _LARGEST_MAP)
