"""Packages that only one source or command needs: extras, which pip installs by name."""

from __future__ import annotations

from importlib import import_module

from raysim.core.errors import ConfigError


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
