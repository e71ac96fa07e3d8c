"""Resolves paths of input files.

A path of an input file is relative to the folder of the YAML file in which it stands. Outside of a YAML file it is
relative to the working directory. The path becomes absolute when a configuration is read. Paths of output (``--out``,
``tracking.uri``, ``checkpoint.path``) remain relative to the working directory. In all paths ``~`` is the user's home
folder.
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
"""The keys of the configuration section ``system`` whose values are paths of input files."""


WRITTEN = (("checkpoint", "path"), ("tracking", "uri"))
"""The configuration sections with a path of output, each with the key of the path."""


def anchored(tree: Mapping[str, Any], folder: Path, laid_over: Collection[str] = ()) -> dict[str, Any]:
    """Return a configuration's ``tree`` in which the paths of input files are absolute.

    Relative paths start at ``folder``. A path whose dotted key is in ``laid_over``, or below one of these keys, starts
    at the working directory.
    """
    result = dict(tree)

    def absolute(section: Mapping[str, Any], keys: Collection[str], at: str) -> dict[str, Any]:
        given = {key for key in keys if {at.partition(".")[0], f"{at}.{key}"} & set(laid_over)}
        return _absolute(section, {key: Path.cwd() if key in given else folder for key in keys})

    for name, key in WRITTEN:
        if isinstance(section := tree.get(name), Mapping) and isinstance(path := section.get(key), str):
            result[name] = {**section, key: _at_home(path)}
    if isinstance(data := tree.get("data"), Mapping):
        result["data"] = absolute(data, path_keys(data.get("source", table()["data.source"])), "data")
    if isinstance(system := tree.get("system"), Mapping):
        result["system"] = absolute(system, SYSTEM, "system")
    if isinstance(strategy := tree.get("strategy"), Mapping):
        result["strategy"] = absolute(strategy, ("from",), "strategy")
    if isinstance(strategies := tree.get("strategies"), list | tuple):
        result["strategies"] = [
            absolute(each, ("from",), f"strategies.{i}") if isinstance(each, Mapping) else each
            for i, each in enumerate(strategies)
        ]
    return result


def path_keys(source: Any) -> tuple[str, ...]:
    """Return the keys whose values are paths, for the data source with the registered name ``source``."""
    try:
        types = hints(registry.load("sources", str(source), "data.source"))
    except (ConfigError, NameError, TypeError):  # reported when the source is made
        types = {}
    return ("path", *(key for key, hint in types.items() if key != "path" and Path in (hint, *get_args(hint))))


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return a path with ``~`` replaced by the home folder. Raises ``ConfigError`` for impossible characters."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise ConfigError(
            f"{os.fspath(path)!a}: is not a path: it contains an invalid Unicode character; name another"
        ) from None
    return Path(os.path.expanduser(path))


def display_path(path: Path) -> str:
    """Return a path for display: relative if it is below the working directory."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def _absolute(section: Mapping[str, Any], homes: Mapping[str, Path]) -> dict[str, Any]:
    """Return the section with absolute paths; ``homes`` maps the key of each path to the folder at which relative paths
    start.
    """
    paths = {key: value for key, value in section.items() if key in homes and isinstance(value, str | os.PathLike)}
    return {**section, **{key: _from(os.fspath(value), homes[key]) for key, value in paths.items()}}


def _from(path: str, folder: Path) -> str:
    """Return the absolute form of a path relative to ``folder``. An empty path or an address does not change."""
    return path if not path or "://" in path else os.path.abspath(folder / _at_home(path))


def _at_home(path: str) -> str:
    """Return a path, or an address of a file, with ``~`` replaced by the home folder.

    >>> _at_home("sqlite:///~/mlflow.db") == "sqlite:///" + os.path.expanduser("~/mlflow.db")
    True
    """
    before, slashes, after = path.rpartition(":///")
    return before + slashes + os.path.expanduser(after)
