"""The defaults of the configuration, from two YAML files of the package.

``raysim/config/defaults.yaml`` is the complete default configuration. ``raysim/config/optional.yaml`` has the defaults
of optional sections; in its keys, ``*`` stands for any name.
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
    """A function that returns the default of the key at a dotted path."""

    key: str

    def __call__(self) -> Any:
        return copy.deepcopy(table()[self.key])


def default(key: str, **field: Any) -> Any:
    """Return a pydantic field whose default is the value of the dotted ``key`` in the YAML files of defaults.

    ``field`` contains further arguments of pydantic's ``Field``. A key without a default raises ``KeyError``.
    """
    if key not in table():
        raise KeyError(f"{key}: has no default in {' or '.join(FILES)}")
    return Field(default_factory=Default(key), validate_default=True, **field)


@cache
def table() -> Mapping[str, Any]:
    """Return the default of each key by its dotted path.

    A mapping whose keys are free names (``*``) is empty by default.
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
