"""Which of its codes OpenBLAS computes with, and that all processes of a run take the same one.

OpenBLAS, whose products numpy and scipy call, looks for the code of the processor when it is loaded. Where it does not
know an AMD processor yet it takes the code for AVX2, which is half as fast as that for AVX-512. Results of two codes
differ in the last bits. A process of raysim's own therefore asks for the faster code by the variable
``OPENBLAS_CORETYPE`` before numpy is imported. A process that only imports raysim keeps what it has. Actors use the
code of the process that began the run, whichever Ray they run in.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

VARIABLE = "OPENBLAS_CORETYPE"
AVX512 = "SkylakeX"
"""OpenBLAS's name of its code for AVX-512."""
OF_AVX512 = frozenset((AVX512, "Cooperlake", "SapphireRapids"))
"""The names of all its codes for AVX-512."""
_NEEDED = frozenset(("avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"))
_UNKNOWN = frozenset(("Haswell", "Zen"))
"""What OpenBLAS takes for an AMD processor that it does not know: code for AVX2."""
_SYMBOLS = "gotoblas_corename", "gotoblas_dynamic_quit", "gotoblas_dynamic_init"


def prefer() -> None:
    """Ask for the code for AVX-512 on an AMD processor that has it, unless the environment says what to take.

    For a process of raysim's own, before numpy is imported; afterwards it changes nothing.
    """
    if VARIABLE not in os.environ and "numpy" not in sys.modules and _amd_with_avx512(Path("/proc/cpuinfo")):
        os.environ[VARIABLE] = AVX512


def code() -> str | None:
    """The name of the code that this process computes with; None where there is no OpenBLAS that says so."""
    return min((_code(library) for library in _loaded()), default=None)


def follow(name: str | None) -> None:
    """Take the code called ``name``, for a process of raysim's own in which nothing computes yet.

    Switches only between the two codes of an AMD processor with AVX-512: any other machine keeps what it has.
    """
    choices = _UNKNOWN | {AVX512}
    if name is None or name not in choices or not _amd_with_avx512(Path("/proc/cpuinfo")):
        return
    os.environ[VARIABLE] = name  # for those that are loaded later
    for library in _loaded():
        if _code(library) in choices - {name}:
            # It looks at the environment again, as it does when it is loaded.
            library.gotoblas_dynamic_quit()
            library.gotoblas_dynamic_init()


def _loaded() -> list[ctypes.CDLL]:
    """Each OpenBLAS of this process that chooses by the processor; one that was made for one kind does not."""
    from threadpoolctl import ThreadpoolController

    controllers = ThreadpoolController().select(internal_api="openblas").lib_controllers
    libraries = [ctypes.CDLL(controller.filepath) for controller in controllers]
    return [library for library in libraries if all(hasattr(library, name) for name in _SYMBOLS)]


def _code(library: ctypes.CDLL) -> str:
    # Asked anew: threadpoolctl remembers the first answer.
    library.gotoblas_corename.restype = ctypes.c_char_p
    name: bytes = library.gotoblas_corename()
    return name.decode()


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
