"""The version and the folder of the package."""

import os
from pathlib import Path

__version__ = "0.1.0"

FOLDER = Path(__file__).resolve().parents[1]
"""The package's folder, with all its subpackages."""


def versions(*packages: str) -> dict[str, str]:
    """Return the version of raysim and of each of ``packages``; ``absent`` if one is not installed.

    >>> versions("no-such-package")["no-such-package"]
    'absent'
    """
    from importlib.metadata import PackageNotFoundError, version  # whoever imports raysim would wait for it

    found = {"raysim": __version__}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    return found


def cache_folder() -> Path:
    """Return raysim's cache folder: ``$RAYSIM_CACHE``, or ``raysim`` in ``$XDG_CACHE_HOME`` or ``~/.cache``.

    Raises ``RuntimeError`` if the user has no home directory.
    """
    if chosen := os.environ.get("RAYSIM_CACHE"):
        return Path(chosen).expanduser().absolute()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg).expanduser().absolute() / "raysim"
    return Path.home() / ".cache" / "raysim"
