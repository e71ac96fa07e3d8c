"""The defaults of the configuration.

All defaults are in two YAML files of the package. ``raysim/config/defaults.yaml`` is the complete default
configuration. ``raysim/config/optional.yaml`` has the defaults of optional sections, which exist only in configurations
that name them. In its keys, ``*`` stands for any name.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import Field

from raysim.core.plain_yaml import loaded

FILES = ("defaults.yaml", "optional.yaml")


@dataclass(frozen=True)
class Default:
    """A function that returns the default of the key at a dotted path. Each call returns a new copy."""

    key: str

    def __call__(self) -> Any:
        return copy.deepcopy(table()[self.key])


def default(key: str, **field: Any) -> Any:
    """Return a pydantic field whose default is the value of the dotted ``key`` in the YAML files of defaults.

    ``field`` has further arguments of pydantic's ``Field``. If the files have no such key, ``KeyError`` is raised as
    soon as the class with this field is defined.
    """
    if key not in table():
        raise KeyError(f"{key}: has no default in {' or '.join(FILES)}")
    return Field(default_factory=Default(key), validate_default=True, **field)


@cache
def table() -> Mapping[str, Any]:
    """Return the default of each key by its dotted path.

    Sections have no entry of their own. A mapping whose keys are free names (``*``) is empty by default.
    """
    package = files("raysim.config")
    return {key: value for name in FILES for key, value in _leaves(loaded((package / name).read_text()))}


def _leaves(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        key = f"{above}{name}"
        if not isinstance(value, Mapping) or not value:
            yield key, value
            continue
        if "*" in value:
            yield key, {}
        yield from _leaves(value, f"{key}.")
