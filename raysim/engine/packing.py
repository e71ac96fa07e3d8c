"""Packing of plain values as named arrays and JSON, so that a strategy's state is stored without executable code.

A state is a dataclass whose fields are arrays, numbers, texts, None, or tuples, lists and dicts of these. A field may
itself be a dataclass if its annotation names the class.

The content of a file alone never decides which class is created. The class of a state must be a loaded subclass of
:class:`State`, and the class of a field comes from its annotation.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from raysim.core import registry
from raysim.core.errors import ConfigError
from raysim.strategies.base import Newcomers, State, Strategy

Arrays = dict[str, NDArray[Any]]

T = TypeVar("T")

KINDS = "biuf"
"""The kinds of numpy types (``dtype.kind``) that can be stored: Booleans, signed and unsigned integers, floats."""


def pack(value: Any, name: str, arrays: Arrays, *, typed: bool = False) -> Any:
    """Return ``value`` as dicts, lists and plain values that JSON can store. Its arrays are stored in ``arrays`` under
    names that begin with ``name``.

    ``typed`` says whether an annotation names the class of ``value``; only then can a dataclass be packed. Raises a
    ``TypeError`` that names the part that cannot be stored, such as a dataclass inside a list.
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
    if typed and dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if field.init]
        return {"fields": {key: pack(getattr(value, key), f"{name}/{key}", arrays, typed=True) for key in names}}
    raise TypeError(f"{name} holds a value of type {type(value).__name__}")


def unpack(node: Any, arrays: Mapping[str, NDArray[Any]], hint: Any = None) -> Any:
    """Return the value from the result of :func:`pack`. ``hint`` is the annotation of the field that has this value."""
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


def pack_state(state: State, arrays: Arrays, strategy: Strategy) -> dict[str, Any]:
    """Return ``state`` as JSON, with the name of its class. Its arrays are stored in ``arrays``. Raises ``ConfigError``
    if it cannot be stored.

    For a registered strategy, the class is stored without its module if the class name is unambiguous: ``{strategy:
    registered name, class: class name}``. Otherwise, it is stored as its import path, ``{class: module.Class}``.
    """
    cls = type(state)
    named = {"class": f"{cls.__module__}.{cls.__qualname__}"}
    registered = registry.name_of("strategies", type(strategy))
    if registered is not None and _nearest(cls.__qualname__, strategy) == [cls]:
        named = {"strategy": registered, "class": cls.__qualname__}
    with _blaming_its_author(cls.__name__):
        return {**named, "value": pack(state, "state", arrays, typed=True)}


def pack_memory(memory: Any, arrays: Arrays) -> Any:
    """Return as JSON the state that a client selection carries between rounds. Raises ``ConfigError`` if it cannot be
    stored.
    """
    with _blaming_its_author("what the selection remembers"):
        return pack(memory, "memory", arrays)


@contextmanager
def _blaming_its_author(what: str) -> Iterator[None]:
    try:
        yield
    except TypeError as error:
        raise ConfigError(
            f"checkpoint: {what} cannot be stored, because {error}; use arrays, numbers, texts, "
            "or tuples, lists and dicts of these; or set checkpoint.every=0"
        ) from None


def unpack_state(packed: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], strategy: Strategy) -> State:
    """Return the state from the result of :func:`pack_state`. Raises ``ValueError`` if the state was stored for another
    registered strategy, or if not exactly one loaded class of states has the stored name.
    """
    name, registered = packed["class"], packed.get("strategy")
    if registered is None:
        classes = [cls for (module, qualified), cls in _all_of(State).items() if f"{module}.{qualified}" == name]
    elif registered == registry.name_of("strategies", type(strategy)):
        classes = _nearest(name, strategy)
    else:
        raise ValueError(f"its state is of the strategy '{registered}', which is not the configured one")
    if len(classes) != 1:
        raise ValueError(f"its state has the class {name}, which the configured strategy does not have")
    state: State = unpack(packed["value"], arrays, classes[0])
    return state


def pack_newcomers(rule: Newcomers | None, arrays: Arrays) -> Any:
    """Return as JSON the rule that assigns one of the server's models to hospitals that did not train. Raises
    ``ConfigError`` if it cannot be stored.
    """
    if rule is None:
        return None
    with _blaming_its_author("the rule for hospitals that did not train"):
        value = pack(rule, "newcomers", arrays, typed=True)
    return {"class": f"{type(rule).__module__}.{type(rule).__qualname__}", "value": value}


def unpack_newcomers(packed: Mapping[str, Any] | None, arrays: Mapping[str, NDArray[Any]]) -> Newcomers | None:
    """Return the rule from the result of :func:`pack_newcomers`. Raises ``ValueError`` for a class that is not such a
    rule.
    """
    if packed is None:
        return None
    for (module, qualified), cls in _all_of(Newcomers).items():
        if f"{module}.{qualified}" == packed["class"]:
            rule: Newcomers = unpack(packed["value"], arrays, cls)
            return rule
    raise ValueError(
        f"its rule for hospitals that did not train has the class {packed['class']}, which this version does not know"
    )


def _nearest(name: str, strategy: Strategy) -> list[type[State]]:
    """Return the state classes called ``name`` in the modules nearest to the strategy's module: those whose paths share
    the most leading parts with its path.
    """
    home = type(strategy).__module__.split(".")
    by_depth: dict[int, list[type[State]]] = {}
    for (module, qualified), cls in _all_of(State).items():
        if qualified == name:
            common = takewhile(lambda pair: pair[0] == pair[1], zip(home, module.split("."), strict=False))
            by_depth.setdefault(len(list(common)), []).append(cls)
    return by_depth[max(by_depth)] if by_depth else []


def _all_of(root: type[T]) -> dict[tuple[str, str], type[T]]:
    def each(cls: type[T]) -> Iterator[type[T]]:
        yield cls
        for child in cls.__subclasses__():
            yield from each(child)

    return {(cls.__module__, cls.__qualname__): cls for cls in each(root)}


def _dataclass_of(hint: Any) -> Any:
    """Return the dataclass that an annotation ``X`` or ``X | None`` names. Raises ``ValueError`` if it names no
    dataclass.
    """
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for choice in choices:
        if dataclasses.is_dataclass(choice):
            return choice
    raise ValueError(f"a part of its state belongs in a field of type {hint}, which is not a dataclass")


def _holds_fields(node: Any) -> bool:
    return isinstance(node, dict) and "fields" in node
