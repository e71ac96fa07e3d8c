"""Finds strategies, selections, models and data sources by name, or by import path.

Names come from the entry-point groups ``raysim.strategies``, ``raysim.selections``, ``raysim.models`` and
``raysim.sources``, so that another package can add one without a change here.
"""

from __future__ import annotations

import importlib
import re
import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from raysim.core.errors import ConfigError, nearest


@cache
def entries(kind: str) -> dict[str, EntryPoint]:
    """The registered entry points of ``kind`` (``strategies``, ``selections``, ``models``, ``sources``) by name."""
    return {entry.name: entry for entry in sorted(entry_points(group=f"raysim.{kind}"), key=lambda entry: entry.name)}


def load(kind: str, name: str, field: str) -> Any:
    """The object registered as ``name``; case, ``-`` and ``_`` do not matter. ``field`` is named in the error."""
    known = entries(kind)
    wanted = _plain(name)
    for registered, entry in known.items():
        if _plain(registered) == wanted:
            return entry.load()
    raise ConfigError(f"{field}: '{name}' is not a known name; {nearest(name, known)}")


def load_class(path: str, field: str) -> Any:
    """The class at import path ``package.module.Class``; modules in the working directory are found."""
    module_name, _, attribute = path.rpartition(".")
    if not module_name:
        raise ConfigError(f"{field}: '{path}' is not an import path; write module.Class")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except AttributeError:
        raise ConfigError(f"{field}: module '{module_name}' has no '{attribute}'; check the name") from None
    except Exception as error:  # whatever the user's module raises while it is imported
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(f"{field}: '{path}' cannot be imported ({reason}); run where it is importable") from None


def _plain(name: str) -> str:
    return re.sub(r"[-_ ]", "", name.lower())
