"""Entry points of installed packages for raysim, and packages that are extras.

It imports nothing slow, because the command line begins with it.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from importlib.metadata import Distribution, EntryPoint, entry_points

from raysim.core.errors import ConfigError


def registered(kind: str) -> list[EntryPoint]:
    """Return the entry points of the group ``raysim.<kind>`` by name, raysim's own before those of other packages."""
    return sorted(entry_points(group=f"raysim.{kind}"), key=lambda entry: (not is_own(entry), entry.name))


def is_own(entry: EntryPoint) -> bool:
    """Return whether raysim itself registers it, and not another package."""
    return entry.dist is not None and _name(entry.dist) == "raysim"


@lru_cache(maxsize=64)
def _name(package: Distribution) -> str:
    """Return the name of a package, cached: each look-up parses its metadata again, and many entries share one."""
    return package.name


def need(package: str, extra: str, field: str, otherwise: str = "") -> None:
    """Import ``package``. Raises ``ConfigError`` with the line that installs it if it is missing.

    ``field``: the key that needs it; ``otherwise``: the alternative without it.
    """
    try:
        import_module(package)
    except ImportError:
        more = f", or {otherwise}" if otherwise else ""
        line = f"pip install 'raysim[{extra}]'"
        raise ConfigError(f"{field}: needs the package {package}, which is not installed; {line}{more}") from None
