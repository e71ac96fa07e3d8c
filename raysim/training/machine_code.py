"""Loops as machine code of this processor: compiled by numba once, and kept on disk for later processes.

A later process needs neither numba, whose import takes a third of a second, nor the loops' modules: LLVM, which numba
brings, links the code in a few milliseconds. The code is kept in ``__pycache__`` beside the loops, or in the user's
cache folder where nobody may write there; where that is impossible too, each process compiles it anew. Code that no
process has read for a month goes when other code is written beside it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import time
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from importlib.machinery import SourceFileLoader
from importlib.metadata import version
from pathlib import Path
from threading import RLock
from types import CodeType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.atomic import replacing
from raysim.core.package import cache_folder

_HASH = 32
"""Bytes before the code in a file, which tell whether it is whole."""
_KEPT = f"*-{'[0-9a-f]' * 24}.code"
"""Names of files with code, unfinished ones too."""
_DAY, _MONTH = 86400, 30 * 86400
"""Seconds. Files say within a day when they were last read, and go where that is a month ago."""
_lock = RLock()
_linkers: list[Any] = []  # code is in memory as long as what has linked it


def _unlock() -> None:
    """In a fork: the thread that may have held the lock is not there."""
    global _lock
    _lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


def function(module: str, name: str, given: str, dtype: Any, *sizes: Any) -> Callable[..., None]:
    """The loop ``name`` of ``raysim.training.loops.<module>``, called with whole numbers below ``2**64``.

    ``given`` has a letter for each: the address of an array of ``dtype`` (a), of float64 (r), of whole numbers of 64
    bits (i) or of bytes (b), or the number itself (n). Where there are ``sizes``, ``name`` is a function that makes the
    loop for them; they are constants of the compiler. The interpreter's lock is free while it runs.
    """
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_uint64] * len(given))
    return kind(address(module, name, given, np.dtype(dtype).name, *sizes))


@cache
def address(module: str, name: str, given: str, dtype: str, *sizes: Any) -> int:
    """Where the machine code of a loop begins; see :func:`function`."""
    with _lock:  # two threads would compile it both
        file = f"{module}.{name}-{_digest(module, name, given, dtype, *sizes)}.code"
        code = _read(file)
        if code is None:
            code = _compiled(module, name, given, dtype, *sizes)
            if _sources() == _first_sources():  # else it may be that of files that have just changed
                _keep(file, code)
        symbol, _, machine_code = code.partition(b"\0")
        return _linked(symbol.decode(), machine_code)


def location(array: NDArray[Any], shape: tuple[int, ...], dtype: Any) -> int:
    """The address of an array of this ``shape``, whose numbers loops read as they lie.

    Raises ``ValueError`` for another shape or ``dtype``, or where the numbers do not lie one after the other.
    """
    if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
        name = np.dtype(dtype).name
        raise ValueError(f"{shape} numbers of {name} one after the other are needed, not {array.shape}")
    at: int = array.ctypes.data
    return at


@cache
def blas(routine: str, dtype: Any) -> int:
    """The address of scipy's BLAS ``routine``, such as ``gemm``, which takes the addresses of all that it is given."""
    name = {4: "s", 8: "d"}[np.dtype(dtype).itemsize] + routine
    from scipy.linalg import cython_blas

    capsule, api = cython_blas.__pyx_capi__[name], ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    found: int = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    return found


def _digest(*loop: Any) -> str:
    """Of all that the code depends on."""
    return sha256(repr((_first_sources(), *loop)).encode()).hexdigest()[:24]


@cache
def _first_sources() -> str:
    return _sources()


def _sources() -> str:
    """A digest of the loops, of what compiles them, and of the processor."""
    import llvmlite.binding as llvm

    compiler = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("NUMBA_"))
    about = [version("numba"), version("llvmlite"), *compiler, llvm.get_host_cpu_name()]
    digest = sha256(repr([*about, llvm.get_host_cpu_features().flatten(), _numba_file()]).encode())
    for path in (Path(__file__), *sorted(_beside().rglob("*.py"))):
        # What Python would run, which is not always what the file says: it goes by the file's size and time.
        digest.update(repr(_parts(SourceFileLoader(path.stem, str(path)).get_code(path.stem))).encode())
    return digest.hexdigest()


def _numba_file() -> bytes:
    """The file in the working folder that numba reads settings from, beside the environment."""
    try:
        return Path(".numba_config.yaml").read_bytes()
    except OSError:
        return b""


def _parts(code: Any) -> Any:
    """What of Python's code decides what it does."""
    if isinstance(code, frozenset):
        return sorted(map(repr, code))
    if not isinstance(code, CodeType):
        return repr(code)
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, [_parts(part) for part in code.co_consts]


def _beside() -> Path:
    return Path(__file__).with_name("loops")


def _folders() -> Iterator[Path]:
    """Where code may be kept, the best first."""
    yield _beside() / "__pycache__"
    with contextlib.suppress(RuntimeError):  # the user has no home
        yield cache_folder() / "code"


def _read(file: str) -> bytes | None:
    """The code that is kept as ``file``; None where it is not, or not whole."""
    for folder in _folders():
        try:
            kept = (folder / file).read_bytes()
        except OSError:
            continue
        if sha256(kept[_HASH:]).digest() == kept[:_HASH]:
            with contextlib.suppress(OSError):  # it is another user's, and may not be marked
                if _age(folder / file) > _DAY:
                    os.utime(folder / file)
            return kept[_HASH:]
    return None


def _keep(file: str, code: bytes) -> None:
    """Keep ``code`` as ``file`` where it can be kept. Other processes never find a part of it."""
    for folder in _folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with replacing(folder / file) as unfinished:
                unfinished.write_bytes(sha256(code).digest() + code)
        except OSError:
            continue
        _drop_unused(folder)
        return


def _drop_unused(folder: Path) -> None:
    """Remove code that no process has read for long: sources and settings have changed since, here or elsewhere."""
    with contextlib.suppress(OSError):
        for path in folder.glob(_KEPT):
            with contextlib.suppress(OSError):  # another process was quicker, or it is another user's
                if _age(path) > _MONTH:
                    path.unlink()


def _age(path: Path) -> float:
    """Seconds since a file was written or marked as read."""
    return time.time() - path.stat().st_mtime


def _compiled(module: str, name: str, given: str, dtype: str, *sizes: Any) -> bytes:
    """The code's name, a zero and the code, as an object file."""
    from importlib import import_module

    with _compiling():
        from raysim.training.loops.writing import object_code

        loop = getattr(import_module(f"raysim.training.loops.{module}"), name)
        return object_code(loop(*sizes) if sizes else loop, given, dtype)


@contextlib.contextmanager
def _compiling() -> Iterator[None]:
    """Without those settings of numba for debuggers by which no loop is compiled, or one that calls numba or prints.

    Nor does Python look for garbage, which takes a seventh of the time: numba makes many objects, and few go.
    """
    from numba.core import config

    config.reload_config()  # numba does so before it compiles, where the environment has changed
    asked = {name: getattr(config, name) for name in ("DISABLE_JIT", "DEBUG_JIT", "OPT")}
    config.DISABLE_JIT = config.DEBUG_JIT = 0
    if config.OPT == 0:  # what handles errors that no loop raises is then left in the code
        config.OPT = type(config.OPT)(1)
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        for name, value in asked.items():
            setattr(config, name, value)
        if collecting:
            gc.enable()


def _linked(symbol: str, machine_code: bytes) -> int:
    """The address of ``symbol`` in an object file, which stays in memory until the process ends."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    linker = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    linker.add_object_file(llvm.ObjectFileRef.from_data(machine_code))
    linker.finalize_object()
    _linkers.append(linker)
    at: int = linker.get_function_address(symbol)
    return at
