"""Checks of settings. Each error message begins with the field's name."""

from __future__ import annotations

import contextlib
import math
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints


class Unfit(ValueError):
    """Raised by ``setup`` when the strategy is not defined for the federation.

    The message begins with the name of the strategy's setting: ``features: ...``.
    """


class Invalid(ValueError):
    """Raised when the code of a strategy or selection returns a value that cannot be used.

    The message begins with the name of the returned value: ``upload.weight: ...``.
    """


def at_least(field: str, value: float, bound: float, *, finite: bool = True) -> None:
    """Raise ``ValueError`` naming ``field`` unless ``value >= bound``; with ``finite``, also for infinity."""
    if not value >= bound:
        raise ValueError(f"{field}: {value} is not at least {bound}")
    if finite and math.isinf(value):
        raise ValueError(f"{field}: {value} is not finite; give a finite number of at least {bound}")


def above(field: str, value: float, bound: float, *, finite: bool = True) -> None:
    """Raise ``ValueError`` naming ``field`` unless ``value > bound``; with ``finite``, also for infinity."""
    if not value > bound:
        raise ValueError(f"{field}: {value} is not greater than {bound}")
    if finite and math.isinf(value):
        raise ValueError(f"{field}: {value} is not finite; give a finite number greater than {bound}")


def within(field: str, value: float, low: float, high: float) -> None:
    """Raise ``ValueError`` naming ``field`` unless ``low <= value <= high``."""
    if not low <= value <= high:
        raise ValueError(f"{field}: {value} is not between {low} and {high}")


def below_one(field: str, value: float) -> None:
    """Raise ``ValueError`` naming ``field`` unless ``0 <= value < 1``."""
    if not 0 <= value < 1:
        raise ValueError(f"{field}: {value} is not in [0, 1)")


def share_of_one(field: str, value: float) -> None:
    """Raise ``ValueError`` naming ``field`` unless ``0 < value <= 1``."""
    if not 0 < value <= 1:
        raise ValueError(f"{field}: {value} is not in (0, 1]")


def one_of(field: str, value: str, choices: Sequence[str]) -> None:
    """Raise ``ValueError`` naming ``field`` unless ``value`` is among the ``choices``."""
    if value not in choices:
        raise ValueError(f"{field}: '{value}' is not one of {', '.join(choices)}")


class Limit:
    """The limits of a setting, declared in its annotation: ``order: Annotated[int, Limit(within, 1, 2)] = 2``."""

    def __init__(self, check: Callable[..., None], *bounds: float, **how: bool) -> None:
        """``check`` is a function such as :func:`within`; ``bounds`` and ``how`` are its arguments after name and
        value."""
        self._check, self._bounds, self._how = check, bounds, how

    def __call__(self, field: str, value: Any) -> None:
        """Raise ``ValueError`` naming ``field`` for a value beyond the limits."""
        self._check(field, value, *self._bounds, **self._how)


NonNegativeFloat = Annotated[float, Limit(at_least, 0)]
NonNegativeInt = Annotated[int, Limit(at_least, 0)]
PositiveInt = Annotated[int, Limit(at_least, 1)]
UnitInterval = Annotated[float, Limit(within, 0, 1)]
BelowOne = Annotated[float, Limit(below_one)]
ShareOfOne = Annotated[float, Limit(share_of_one)]


class Settings:
    """Base class of dataclasses whose fields are checked against the limits and choices in their annotations."""

    def __post_init__(self) -> None:
        """Raise ``ValueError`` naming the first field with a value out of its range."""
        for field, hint in _hints(type(self)).items():  # type: ignore[arg-type]  # classes are hashable
            _check(field, getattr(self, field), hint)


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    """Return the annotations of a dataclass's fields, without those that only type checkers can resolve."""
    hints: dict[str, Any] = {}
    for owner in reversed(kind.__mro__):
        names = getattr(sys.modules.get(owner.__module__), "__dict__", {})
        for name, annotation in vars(owner).get("__annotations__", {}).items():
            hints.pop(name, None)
            alone = type(name, (), {"__annotations__": {name: annotation}})
            with contextlib.suppress(NameError):
                hints |= get_type_hints(alone, names, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind) if field.name in hints}


def _check(field: str, value: Any, hint: Any) -> None:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        for limit in inner[1:]:
            if isinstance(limit, Limit):
                limit(field, value)
    elif origin is Literal:
        one_of(field, value, inner)
    elif origin is tuple:
        for each in value:
            _check(field, each, inner[0])
    elif isinstance(value, Mapping) and inner:
        for name, each in value.items():
            _check(f"{field}.{name}", each, inner[1])
    elif origin in (Union, types.UnionType) and value is not None:
        text = isinstance(value, str)
        for each in inner:
            if get_origin(each) is (Literal if text else Annotated):
                _check(field, value, each)
