"""The choice of OpenBLAS's code for the processor.

OpenBLAS computes the products of numpy and scipy, and chooses its code when it is loaded. For an AMD processor that
OpenBLAS does not know, it chooses the code for AVX2, which is half as fast as the code for AVX-512. The results of the
two codes differ in the last bits. raysim's command line therefore requests the code for AVX-512 by the variable
``OPENBLAS_CORETYPE``, before numpy is imported; its child processes inherit the variable.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

VARIABLE = "OPENBLAS_CORETYPE"
AVX512 = "SkylakeX"
"""The value of ``OPENBLAS_CORETYPE`` that selects OpenBLAS's code for AVX-512."""
_NEEDED = frozenset(("avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"))


def prefer() -> None:
    """Request the code for AVX-512 on an AMD processor that supports it, unless the environment names another code.

    Does nothing if numpy is already imported.
    """
    if VARIABLE not in os.environ and "numpy" not in sys.modules and _amd_with_avx512(Path("/proc/cpuinfo")):
        os.environ[VARIABLE] = AVX512


def _amd_with_avx512(described: Path) -> bool:
    vendor = ""
    try:
        with described.open() as lines:
            for line in lines:
                key, _, value = line.partition(":")
                if key.strip() == "vendor_id":
                    vendor = value.strip()
                elif key.strip() == "flags":
                    return vendor == "AuthenticAMD" and frozenset(value.split()) >= _NEEDED
    except OSError:
        pass
    return False
