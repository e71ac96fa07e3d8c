"""Converts plug-in objects, such as strategies, to configuration sections in plain YAML types."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError

from raysim.config.checking import adapter, validated
from raysim.core import registry
from raysim.core.errors import ConfigError
from raysim.strategies.base import Strategy


def fields_of(plugin: Any) -> dict[str, Any]:
    """Return a plug-in's settings as plain YAML types, without those that are None and have the default None."""
    cls: Any = type(plugin)
    tree: dict[str, Any] = adapter(cls).dump_python(plugin, mode="json", exclude_none=True)
    unset = {key for key, value in adapter(cls).dump_python(plugin, mode="json").items() if value is None}
    return tree | dict.fromkeys(unset - _unset_by_default(cls))


def made(cls: type[Strategy]) -> Strategy:
    """Return a strategy of the class ``cls`` with all defaults. Raises ``ConfigError`` if a field has no default."""
    try:
        return cls()
    except TypeError as error:
        raise ConfigError(
            f"strategy: '{cls.__name__}' cannot be constructed without arguments ({error}); pass an instance of the "
            "class"
        ) from None


def place_of(cls: type[Strategy]) -> dict[str, Any]:
    """Return the key and value that name a strategy's class: the registered ``name``, or the import path ``class``."""
    name = registry.name_of("strategies", cls)
    return {"class": f"{cls.__module__}.{cls.__qualname__}"} if name is None else {"name": name}


def is_importable(cls: type[Strategy]) -> bool:
    """Return whether another process can import the class.

    It cannot import a class that is defined in a notebook, in the main script or in a function.
    """
    return cls.__module__ != "__main__" and "<" not in cls.__qualname__


def section_of(strategy: Strategy) -> dict[str, Any]:
    """Return the configuration section that describes ``strategy``: its registered name or import path, and its fields.

    Raises ``ConfigError`` if a field's value does not match its annotation, or cannot be written in YAML.
    """
    cls, given = type(strategy), cast(Any, strategy)
    if not dataclasses.is_dataclass(given):
        raise ConfigError(f"strategy: '{cls.__name__}' takes no configuration; make it a dataclass")
    fields = {field.name: getattr(strategy, field.name) for field in dataclasses.fields(given) if field.init}
    try:
        return place_of(cls) | fields_of(validated(cls, fields, "strategy"))
    except (PydanticUserError, PydanticSerializationError, NameError) as error:
        reason = str(error).splitlines()[0].partition(". ")[0]
        raise ConfigError(
            f"strategy: '{cls.__name__}' has a field that cannot be written into config.yaml ({reason}); make it of "
            "numbers, texts, truth values, and lists of these"
        ) from None


def _unset_by_default(cls: Any) -> set[str]:
    if dataclasses.is_dataclass(cls):
        return {field.name for field in dataclasses.fields(cls) if field.default is None}
    return {name for name, field in cls.model_fields.items() if field.default is None}
