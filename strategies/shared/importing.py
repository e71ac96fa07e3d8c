"""What a user names by import path, ``package.module.name``: a class or a function of their own.

Modules in the working directory are found, and found last: a file there never stands in for a module of raysim, of
Python or of a library.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from typing import Any


def by_path(path: str) -> Any:
    """The object at an import path. Raises ``ValueError`` that names the path and says why there is none."""
    module_name, _, name = path.rpartition(".")
    if not module_name:
        raise ValueError(f"'{path}' cannot be imported (it names no module); write package.module.name")
    search_last([os.getcwd()])
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's module raises while it is imported
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(f"'{path}' cannot be imported ({reason}); run where it is importable") from None
    if not hasattr(module, name):
        # Another module than the user's may have that name; where it lies shows it.
        place = getattr(module, "__file__", None) or "Python itself"
        reason = f"module '{module_name}' in {place} has no '{name}'"
        raise ValueError(f"'{path}' cannot be imported ({reason}); check the names of the module and in it")
    return getattr(module, name)


def search_path() -> tuple[str, ...]:
    """The folders in which this process looks for modules, its working directory among them: for other processes."""
    folders = dict.fromkeys([*map(os.path.abspath, sys.path), os.getcwd()])
    return tuple(folder for folder in folders if os.path.exists(folder))


def search_last(folders: Iterable[str]) -> None:
    """Look for modules in these ``folders`` too, after all others."""
    sys.path += [folder for folder in folders if folder not in sys.path]
