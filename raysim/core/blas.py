"""Which of its codes OpenBLAS computes with.

OpenBLAS, whose products numpy and scipy call, looks for the code of the processor when it is loaded. Where it does not
know an AMD processor yet it takes the code for AVX2, which is half as fast as that for AVX-512. Results of two codes
differ in the last bits. A process of raysim's own therefore asks for the faster code by the variable
``OPENBLAS_CORETYPE`` before numpy is imported, and the processes that it starts have the variable from it. A process
that only imports raysim keeps what it has.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

VARIABLE = "OPENBLAS_CORETYPE"
AVX512 = "SkylakeX"
"""OpenBLAS's name of its code for AVX-512."""
_NEEDED = frozenset(("avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"))


def prefer() -> None:
    """Ask for the code for AVX-512 on an AMD processor that has it, unless the environment says what to take.

    For a process of raysim's own, before numpy is imported; afterwards it changes nothing.
    """
    if VARIABLE not in os.environ and "numpy" not in sys.modules and _amd_with_avx512(Path("/proc/cpuinfo")):
        os.environ[VARIABLE] = AVX512


def _amd_with_avx512(described: Path) -> bool:
    """Whether the first processor in ``described``, a file like ``/proc/cpuinfo``, is an AMD one with AVX-512."""
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
