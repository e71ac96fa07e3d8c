"""The import of classes and functions that a user names by import path, ``package.module.name``.

The user's folder, usually the working directory, is searched last, so that a file there never hides another module. No
configuration and no file of a run can change the folders from which code is imported.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_standing: tuple[str, ...] | None = None
"""The folders that are searched for the user's modules; None means the working directory."""

_strange: tuple[Path, ...] = ()
"""Folders whose paths come from a stored file of a run. No code is imported from these folders."""


def by_path(path: str) -> Any:
    """Return the object at an import path. Raises ``ValueError`` with the path and the reason if it cannot be
    imported."""
    module_name, _, name = path.rpartition(".")
    if not module_name:
        raise ValueError(f"'{path}' cannot be imported (it names no module); write package.module.name")
    search_last(_places())
    try:
        module = importlib.import_module(module_name)
    except SystemExit as error:
        if not ended_by_plugin(error):
            raise
        raise ValueError(
            f"'{path}' cannot be imported: module '{module_name}' {exit_call(error)}; move the call that ends it under "
            "if __name__ == '__main__'"
        ) from None
    except Exception as error:  # whatever the user's module raises on import
        if isinstance(error, ModuleNotFoundError) and (place := _brought_along(error.name)):
            raise ValueError(
                f"'{path}' cannot be imported: module '{error.name}' lies in {place}, and code is imported only from "
                f"{_places()[0]}, where the command was started, and from installed packages; check that module, "
                f"then run the command in {place}"
            ) from None
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(f"'{path}' cannot be imported ({reason}); run the command where it can be imported") from None
    if not hasattr(module, name):
        # Another module may have the same name as the user's; the error shows its path.
        file = getattr(module, "__file__", None) or "Python itself"
        reason = f"module '{module_name}' in {file} has no '{name}'"
        raise ValueError(f"'{path}' cannot be imported ({reason}); check both names")
    return getattr(module, name)


@contextlib.contextmanager
def standing_here(strange: Iterable[Path]) -> Iterator[None]:
    """Inside the context, import the user's modules from the present working directory, even if the directory changes.

    No code is imported from the folders ``strange``, whose paths come from a stored file of a run. If one of them
    contains a missing module, the error mentions this folder.
    """
    global _standing, _strange
    here = os.getcwd()
    before = _standing, _strange
    _standing, _strange = (here,), tuple(place for place in strange if place.absolute() != Path(here))
    # An empty entry, as in a notebook, means the current working directory.
    relative = {os.path.abspath(entry): entry for entry in sys.path if not os.path.isabs(entry)}
    sys.path[:] = [os.path.abspath(entry) for entry in sys.path]
    try:
        yield
    finally:
        _standing, _strange = before
        for absolute, entry in relative.items():
            if absolute in sys.path:
                sys.path[sys.path.index(absolute)] = entry


def search_only(folders: Iterable[str]) -> None:
    """Import the user's modules from ``folders`` instead of the working directory. ``folders`` are added to the end of
    the search path.
    """
    global _standing
    _standing = tuple(folders)
    search_last(_standing)


def search_path() -> tuple[str, ...]:
    """Return all folders from which this process imports modules, for use in other processes."""
    folders = dict.fromkeys([*map(os.path.abspath, sys.path), *_places()])
    return tuple(folder for folder in folders if os.path.exists(folder))


def search_last(folders: Iterable[str]) -> None:
    """Also import modules from ``folders``, after all other folders have been searched."""
    sys.path += [folder for folder in folders if folder not in sys.path]


def _places() -> tuple[str, ...]:
    return (os.getcwd(),) if _standing is None else _standing


def _brought_along(module: str | None) -> Path | None:
    top = (module or "").partition(".")[0]
    for place in _strange if top else ():
        if (place / f"{top}.py").is_file() or (place / top).is_dir():
            return place
    return None


def ended_by_plugin(error: SystemExit) -> bool:
    """Return whether the exit was caused by a plug-in that called ``sys.exit``.

    An exit by raysim or Ray is a subclass of ``SystemExit``, or has an exception note.
    """
    return type(error) is SystemExit and not vars(error)


def exit_call(error: SystemExit) -> str:
    """Return a text for messages: the call of ``sys.exit`` that raised ``error``."""
    return f"called sys.exit({'' if error.code is None else repr(error.code)})"
