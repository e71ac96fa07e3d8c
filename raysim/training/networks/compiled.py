"""Loops that numba compiles for this processor, and memory for them.

Compiled code is kept on disk beside the source, or where the user's caches are, for later processes. A loop that calls
another finds it there only if the other is a module's, and not made by a function. Loops that are made for one size are
therefore called by their address. Loops have no annotations: numba tells types from what they are called with.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.ccallback import CFunc
from numba.extending import intrinsic
from numba.np.numpy_support import from_dtype

from raysim.training.networks.code_files import code_files
from raysim.training.networks.written import Array

LINE = 64
"""Bytes of a line of the cache."""
_OPTIONS = {"fastmath": {"contract"}, "error_model": "numpy"}


def compiled(loop: Callable[..., Any]) -> Any:
    """``loop``, compiled for each type of its arguments when it is first called with them.

    What it takes from the function around it are constants of the compiler. Sums keep their order, so that bits do not
    depend on how loops are cut into vectors; a product and a sum may be one operation.
    """
    _name(loop)
    dispatcher = njit(**_OPTIONS)(loop)
    dispatcher._cache = code_files(loop)
    return dispatcher


def inlined(loop: Callable[..., Any]) -> Any:
    """``loop`` as a part of each that calls it, so that what it is given are constants there too."""
    return njit(inline="always", **_OPTIONS)(loop)


def by_address(loop: Callable[..., Any], given: str, dtype: Any) -> Any:
    """``loop``, compiled at once for :func:`call`, which takes its ``address``.

    ``given`` has a letter for each thing that it takes: an array of ``dtype`` (a), of float64 (r), or a whole number
    without a sign (n).
    """
    kinds = {"a": types.CPointer(from_dtype(np.dtype(dtype))), "r": types.CPointer(types.float64), "n": types.uint64}
    signature = tuple(kinds[letter] for letter in given), types.void
    _name(loop, given, np.dtype(dtype).name)
    callback: Any = CFunc(loop, signature, {}, _OPTIONS)  # as numba.cfunc makes it, but for the cache
    callback._cache = code_files(loop)
    callback.compile()
    return callback


def _name(loop: Callable[..., Any], *about: str) -> None:
    """Name ``loop`` by all that its code is made of, by which its files and what is in them are named.

    Sizes of a loop that different processes have compiled would else have one name in a third, and numba would not see
    that a module which the loop takes something from has changed.
    """
    closed = [repr(cell.cell_contents) for cell in loop.__closure__ or ()]
    made_of = "\n".join([_sources(), *closed, *about])
    loop.__qualname__ += f"_{sha256(made_of.encode()).hexdigest()[:16]}"


@lru_cache
def _sources() -> str:
    """A digest of the sources of all networks' loops."""
    digest = sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@intrinsic  # type: ignore[untyped-decorator]
def call(_: Any, address: Any, numbers: Any) -> Any:
    """Call the function at ``address`` with a tuple of whole numbers, some of which are addresses of arrays."""

    def generate(context: Any, builder: Any, _: Any, given: Any) -> Any:
        integer = ir.IntType(64)
        kind = ir.FunctionType(ir.VoidType(), [integer] * len(numbers))
        function = builder.inttoptr(given[0], kind.as_pointer())
        builder.call(function, cgutils.unpack_tuple(builder, given[1], len(numbers)))
        return context.get_dummy_value()

    return types.void(address, numbers), generate


class Memory(threading.local):
    """What the loops of a thread compute in, one after the other: the next find it in the processor's caches."""

    _bytes = np.empty(0, np.uint8)

    def take(self, dtype: Any, *lengths: int) -> list[Array]:
        """Arrays of such lengths, with anything in them, until the next call. Each begins with a line of the cache."""
        sizes = [-(-length * np.dtype(dtype).itemsize // LINE) * LINE for length in lengths]
        if len(self._bytes) < sum(sizes) + LINE:
            self._bytes = np.empty(sum(sizes) + LINE, np.uint8)
        starts = accumulate(sizes[:-1], initial=-self._bytes.ctypes.data % LINE)
        return [
            self._bytes[start : start + size].view(dtype)[:length]
            for start, size, length in zip(starts, sizes, lengths, strict=True)
        ]


MEMORY = Memory()
