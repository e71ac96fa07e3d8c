"""Paths of input files: those that a YAML file names are relative to its folder, all others to the working directory.

They become absolute when a configuration is read, so that a frozen one means the same files wherever it is read again.
Paths of output (``--out``, ``tracking.uri``, ``checkpoint.path``) stay relative to the working directory.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, get_args

from raysim.config.checking import hints
from raysim.core import registry
from raysim.core.defaults import table
from raysim.core.errors import ConfigError

SYSTEM = ("trace", "table")
"""The keys of ``system`` that name files."""


def anchored(tree: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """``tree`` with the paths of its input files made absolute, relative ones from ``folder``."""
    result = dict(tree)
    if isinstance(data := tree.get("data"), Mapping):
        result["data"] = _absolute(data, path_keys(data.get("source", table()["data.source"])), folder)
    if isinstance(system := tree.get("system"), Mapping):
        result["system"] = _absolute(system, SYSTEM, folder)
    if isinstance(strategy := tree.get("strategy"), Mapping):
        result["strategy"] = _absolute(strategy, ("from",), folder)
    if isinstance(strategies := tree.get("strategies"), list | tuple):
        result["strategies"] = [
            _absolute(each, ("from",), folder) if isinstance(each, Mapping) else each for each in strategies
        ]
    return result


def path_keys(source: Any) -> tuple[str, ...]:
    """The keys of a data source that name files or folders: ``path``, and others that its class annotates as paths."""
    try:
        types = hints(registry.load("sources", str(source), "data.source"))
    except (ConfigError, NameError, TypeError):  # reported when the source is made
        types = {}
    return ("path", *(key for key, hint in types.items() if key != "path" and Path in (hint, *get_args(hint))))


def shown(path: Path) -> str:
    """A path for people: relative where it is below the working directory."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def _absolute(section: Mapping[str, Any], keys: Collection[str], folder: Path) -> dict[str, Any]:
    paths = {key: value for key, value in section.items() if key in keys and isinstance(value, str | os.PathLike)}
    return {**section, **{key: _from(os.fspath(value), folder) for key, value in paths.items()}}


def _from(path: str, folder: Path) -> str:
    """An absolute path; an empty one, an address (``s3://...``), or one that begins with ``~`` stays as it is."""
    if not path or path.startswith("~") or "://" in path:
        return path
    return os.path.abspath(folder / path)
