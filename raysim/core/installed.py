"""The entry points by which installed packages extend raysim, and the import of optional packages.

The module imports nothing slow, because every command imports it.
"""

from __future__ import annotations

import sys
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import Distribution, EntryPoint, entry_points
from typing import Any

from raysim.core.errors import ConfigError, RaysimError
from raysim.core.importing import ended_by_plugin, exit_call


def registered(kind: str) -> list[EntryPoint]:
    """Return the entry points of the group ``raysim.<kind>``, sorted by name. raysim's own come before those of
    other packages."""
    found = _all_entry_points(tuple(sys.path)).select(group=f"raysim.{kind}")
    return sorted(found, key=lambda entry: (not is_own(entry), entry.name))


@cache
def _all_entry_points(path: tuple[str, ...]) -> Any:
    return entry_points()


def is_own(entry: EntryPoint) -> bool:
    """Return whether raysim itself registers the entry point."""
    return entry.dist is not None and _name(entry.dist) == "raysim"


def loaded(entry: EntryPoint, field: str) -> Any:
    """Return the object that an entry point names.

    Raises ``ConfigError`` that names ``field``, the package and the reason if it cannot be imported.
    """
    try:
        return entry.load()
    except RaysimError:
        raise
    except SystemExit as error:
        if not ended_by_plugin(error):
            raise
        cause: BaseException = error
        reason = f"the module {exit_call(error)}"
    except Exception as error:  # whatever another package raises on import
        cause = error
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
    raise ConfigError(
        f"{field}: '{entry.name}' cannot be imported ({reason}); mend {entry.value}, or uninstall the package "
        f"{_name(entry.dist) if entry.dist else 'that registers it'}"
    ) from cause


def loaded_if_sound(entry: EntryPoint) -> Any:
    """Return the object that an entry point names, or None if it cannot be imported."""
    try:
        return loaded(entry, "")
    except ConfigError:
        return None


@lru_cache(maxsize=64)
def _name(package: Distribution) -> str:
    return package.name


def need(package: str, extra: str, field: str, otherwise: str = "") -> None:
    """Import ``package``.

    If it is missing, raise ``ConfigError`` with the command that installs it. ``field`` is the configuration key that
    needs the package; ``otherwise`` is appended to the message.
    """
    try:
        import_module(package)
    except ImportError:
        more = f", or {otherwise}" if otherwise else ""
        line = f"pip install 'raysim[{extra}]'"
        raise ConfigError(f"{field}: needs the package {package}, which is not installed; {line}{more}") from None
