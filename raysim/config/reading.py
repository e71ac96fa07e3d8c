"""Reads a configuration: YAML and overrides, and errors of one line that name the field, the value and the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import TypeAdapter, ValidationError

from raysim.config.schema import Config
from raysim.core import registry
from raysim.core.errors import ConfigError, nearest

T = TypeVar("T")


def read(path: Path | None, overrides: Sequence[str] = ()) -> Config:
    """The configuration in the YAML file at ``path`` (None: all defaults), with ``a.b=value`` overrides applied."""
    tree = read_tree(path, overrides)
    for command in registry.entries("commands"):
        if command in tree:
            raise ConfigError(f"{command}: is read by 'raysim {command}'; use that command, or drop the section")
    return validated(TypeAdapter(Config), tree, "")


def read_tree(path: Path | None, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """What :func:`read` reads, before it is checked."""
    tree: Any = {}
    if path is not None:
        try:
            tree = yaml.safe_load(path.read_text()) or {}
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror}); name a YAML file") from None
        except (yaml.YAMLError, ValueError) as error:  # a date that there is not is a ValueError
            raise ConfigError(f"{path}: not YAML ({' '.join(str(error).split())}); correct that line") from None
        if not isinstance(tree, dict):
            raise ConfigError(f"{path}: holds {type(tree).__name__}, not keys and values; see 'raysim run --help'")
    for override in overrides:
        _apply(tree, override)
    checked: dict[str, Any] = tree
    return checked


def validated(adapter: TypeAdapter[T], value: Any, where: str, beside: Sequence[str] = ()) -> T:
    """``value`` as the adapter's type, or a one-line :class:`ConfigError`; ``where`` is the field that holds it.

    ``beside``: further keys known there, which are read elsewhere; a typing error may mean one of them.
    """
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise ConfigError(_first_line(error, adapter, where, beside)) from None


def _apply(tree: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set: '{override}' is not key=value; write for example training.rounds=5")
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        raise ConfigError(f"--set: '{text}' is not a YAML value; quote it") from None
    *parents, last = key.split(".")
    for parent in parents:
        below = tree.setdefault(parent, {})
        if isinstance(below, str) and parent == "strategy":
            below = tree[parent] = {"name": below}
        if not isinstance(below, dict):
            raise ConfigError(f"--set: '{key}' goes through '{parent}', which holds {below!r}; set '{parent}' instead")
        tree = below
    tree[last] = value


_WORDS = {
    "greater_than_equal": "is not at least {ge}",
    "greater_than": "is not greater than {gt}",
    "less_than_equal": "is not at most {le}",
    "less_than": "is not less than {lt}",
    "finite_number": "is not a finite number",
    "int_parsing": "is not a whole number",
    "int_type": "is not a whole number",
    "int_from_float": "is not a whole number",
    "float_parsing": "is not a number",
    "float_type": "is not a number",
    "string_type": "is not text; quote it",
    "literal_error": "is not one of {expected}",
    "tuple_type": "is not a list",
    "list_type": "is not a list",
    "too_short": "is too short; at least {min_length} is needed",
    "dict_type": "is not a group of keys",
    "model_type": "is not a group of keys",
    "dataclass_type": "is not a group of keys",
    "bool_parsing": "is not true or false",
}


def _first_line(error: ValidationError, adapter: TypeAdapter[Any], where: str, beside: Sequence[str]) -> str:
    first = error.errors()[0]
    path = ".".join(str(part) for part in [*([where] if where else []), *first["loc"]] if not _is_branch(part))
    if first["type"] == "extra_forbidden":
        known = [*_keys_at(adapter, first["loc"][:-1]), *(beside if len(first["loc"]) == 1 else ())]
        return f"{path}: unknown key; {nearest(str(first['loc'][-1]), known)}"
    if first["type"] in ("missing", "missing_argument"):
        return f"{path}: missing; add this key"
    if first["type"] == "value_error":
        text = str(first["ctx"]["error"])
        # A plug-in's own check already names its field: "lam: -1 is not at least 0".
        names_field = where and text.split(":")[0].replace("_", "").replace(".", "").isalnum() and ": " in text
        return f"{path}.{text}" if names_field else f"{path}: {text}"
    words = _WORDS.get(first["type"], "does not fit: " + first["msg"])
    return f"{path}: {first['input']!r} {words.format(**first.get('ctx', {}))}"


def _is_branch(part: Any) -> bool:
    """Whether a part of an error's path names a branch of a union, which is no key."""
    branches = ("literal[", "function-", "constrained-", "tuple[")
    return isinstance(part, str) and (part.startswith(branches) or part in ("int", "float", "str"))


def _keys_at(adapter: TypeAdapter[Any], path: Sequence[Any]) -> list[str]:
    """The keys that the section at ``path`` knows."""
    model: Any = adapter._type
    for part in path:
        if isinstance(part, str) and hasattr(model, "model_fields"):
            model = next((f.annotation for n, f in model.model_fields.items() if part in (n, f.alias)), None)
            model = next((choice for choice in get_args(model) if hasattr(choice, "model_fields")), model)
    fields = getattr(model, "model_fields", {})
    return [field.alias or name for name, field in fields.items()]
