"""What loops are written with, and how numba compiles them.

Loops have no annotations: numba tells types from what they are given. They take arrays as addresses of their first
number. Numbers without a sign index them, as numba looks for a negative index else, and LLVM makes no vectors then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import cfunc, njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import from_dtype

_OPTIONS = {"fastmath": {"contract"}, "error_model": "numpy"}
"""Sums keep their order, so that bits do not depend on how loops are cut into vectors; a product and a sum may be one
operation."""


def called(loop: Callable[..., Any]) -> Any:
    """``loop`` as what others call. LLVM makes it a part of them: else each call would look for errors of numba's."""
    return njit(forceinline=True, **_OPTIONS)(loop)


def inlined(loop: Callable[..., Any]) -> Any:
    """``loop`` as a part of each that calls it, so that what it is given are constants there too."""
    return njit(inline="always", **_OPTIONS)(loop)


def object_code(loop: Callable[..., Any], given: str, dtype: str) -> bytes:
    """The name of ``loop``'s code, a zero and the code, as an object file; see :mod:`raysim.training.machine_code`.

    Raises ``RuntimeError`` where the code needs something of numba's, which a process without numba would look for in
    vain. So does code that may raise an error, as ``range`` with a step that might be 0.
    """
    pointers = {"a": from_dtype(np.dtype(dtype)), "r": types.float64, "i": types.uint64, "b": types.uint8}
    kinds = {"n": types.uint64} | {letter: types.CPointer(kind) for letter, kind in pointers.items()}
    plain = getattr(loop, "py_func", loop)  # of one that others call, too
    made = cfunc(types.void(*(kinds[letter] for letter in given)), forceinline=True, **_OPTIONS)(plain)
    module = llvm.parse_assembly(made.inspect_llvm())
    defined = [each.name for each in module.functions if not each.is_declaration]
    needed = [each.name for each in module.functions if each.is_declaration and not each.name.startswith("llvm.")]
    if needed:
        raise RuntimeError(f"{plain.__name__} calls {', '.join(needed)}")
    symbol = next(name for name in defined if name.startswith("cfunc."))
    code: bytes = symbol.encode() + b"\0" + _machine().emit_object(module)
    return code


def _machine() -> Any:
    """What makes code for this processor."""
    processor = {"cpu": llvm.get_host_cpu_name(), "features": llvm.get_host_cpu_features().flatten()}
    return llvm.Target.from_default_triple().create_target_machine(**processor, opt=3, jit=True)


@intrinsic  # type: ignore[untyped-decorator]
def call(_: Any, address: Any, numbers: Any) -> Any:
    """Call the function at ``address`` with a tuple of whole numbers, some of which are addresses of arrays."""

    def generate(context: Any, builder: Any, _: Any, given: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * len(numbers))
        function = builder.inttoptr(given[0], kind.as_pointer())
        builder.call(function, cgutils.unpack_tuple(builder, given[1], len(numbers)))
        return context.get_dummy_value()

    return types.void(address, numbers), generate


@intrinsic  # type: ignore[untyped-decorator]
def at(_: Any, array: Any) -> Any:
    """The address of ``array``."""

    def generate(context: Any, builder: Any, _: Any, given: Any) -> Any:
        return builder.ptrtoint(given[0], ir.IntType(64))

    return types.uint64(array), generate
