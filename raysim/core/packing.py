"""Plain values as named arrays and JSON, and back: how a strategy's state is kept without anything that executes.

A state is a dataclass of arrays, numbers, texts, None, and tuples, lists and dicts of these; a field may itself be a
dataclass if its annotation says which. Classes are never named by a file alone: the state's is looked up among the
subclasses of ``State`` that the configured strategy has brought along, a field's is read from its annotation.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import ConfigError
from raysim.strategies.base import State

Arrays = dict[str, NDArray[Any]]

KINDS = "biuf"
"""Kinds of numpy types that are kept: truth values, integers with and without sign, floats."""


def pack(value: Any, name: str, arrays: Arrays, *, known: bool = False) -> Any:
    """``value`` as JSON; its arrays go into ``arrays`` under names that begin with ``name``.

    ``known``: whoever unpacks it can tell which dataclass it is. Raises ``TypeError`` naming the part that cannot be
    kept, among them a dataclass where none is known: inside a tuple, list or dict.
    """
    if value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, np.generic)):
        return value
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in KINDS:
        arrays[name] = np.ascontiguousarray(value).reshape(value.shape)
        return {"array" if isinstance(value, np.ndarray) else "number": name}
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        return {type(value).__name__: [pack(item, f"{name}/{i}", arrays) for i, item in enumerate(value)]}
    if type(value) is dict and all(isinstance(key, str | int) for key in value):
        return {"dict": [[key, pack(item, f"{name}/{key}", arrays)] for key, item in value.items()]}
    if known and dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if field.init]
        return {"fields": {key: pack(getattr(value, key), f"{name}/{key}", arrays, known=True) for key in names}}
    raise TypeError(f"{name} holds {type(value).__name__}")


def unpack(node: Any, arrays: Mapping[str, NDArray[Any]], hint: Any = None) -> Any:
    """What :func:`pack` packed; ``hint`` is the annotation of the field that holds it."""
    if not isinstance(node, dict):
        return node
    ((kind, content),) = node.items()
    if kind == "array":
        return arrays[content]
    if kind == "number":
        return arrays[content][()]
    if kind in ("tuple", "list"):
        return {"tuple": tuple, "list": list}[kind](unpack(item, arrays) for item in content)
    if kind == "dict":
        return {key: unpack(item, arrays) for key, item in content}
    cls = _dataclass_of(hint)
    hints = get_type_hints(cls) if any(_holds_fields(item) for item in content.values()) else {}
    return cls(**{key: unpack(item, arrays, hints.get(key)) for key, item in content.items()})


def pack_state(state: State, arrays: Arrays) -> dict[str, Any]:
    """A strategy's state with the name of its class. Raises ``ConfigError`` where it cannot be kept."""
    with _kept(type(state).__name__):
        return {"class": class_name(type(state)), "value": pack(state, "state", arrays, known=True)}


def pack_memory(memory: Any, arrays: Arrays) -> Any:
    """What a selection remembers. Raises ``ConfigError`` where it cannot be kept."""
    with _kept("what the selection remembers"):
        return pack(memory, "memory", arrays)


@contextmanager
def _kept(what: str) -> Iterator[None]:
    """Packing ``what``: what is wrong with it is an error of whoever wrote its class."""
    try:
        yield
    except TypeError as error:
        raise ConfigError(
            f"checkpoint: {what} cannot be kept, {error}; use arrays, numbers, text and tuples, lists "
            "and dicts of them, or set checkpoint.every=0"
        ) from None


def unpack_state(packed: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> State:
    """The state that :func:`pack_state` packed. Raises ``ValueError`` for a class that no strategy brought along."""
    known = {class_name(cls): cls for cls in _subclasses(State)}
    if packed["class"] not in known:
        raise ValueError(f"its state is a {packed['class']}, which the configured strategy does not have")
    state: State = unpack(packed["value"], arrays, known[packed["class"]])
    return state


def class_name(cls: type) -> str:
    """The name that a file holds of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _subclasses(cls: type[State]) -> list[type[State]]:
    return [cls, *(below for child in cls.__subclasses__() for below in _subclasses(child))]


def _dataclass_of(hint: Any) -> Any:
    """The dataclass that an annotation allows, ``X`` or ``X | None``."""
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for choice in choices:
        if dataclasses.is_dataclass(choice):
            return choice
    raise ValueError(f"a part of it belongs in a field that is annotated {hint}, which is no dataclass")


def _holds_fields(node: Any) -> bool:
    return isinstance(node, dict) and "fields" in node
