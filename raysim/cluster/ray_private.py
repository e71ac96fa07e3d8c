"""The four private names of Ray that raysim reads; where a Ray lacks one, it does without.

None of them is changed. ``pyproject.toml`` bounds the versions: 2.52 was the first with tokens.
"""

from __future__ import annotations

import importlib
from typing import Any

NAMES = {
    "node": "ray._private.worker._global_node",
    "settings": "ray._raylet.Config",
    "token": "ray._raylet.AuthenticationTokenLoader",
}
"""Where three of the names are; the fourth is the argument ``_py_driver_sys_path`` of ``JobConfig``."""


def read(what: str) -> Any:
    """The part of Ray that ``NAMES`` calls ``what``; None where this Ray has none."""
    module, _, name = NAMES[what].rpartition(".")
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


class _Nowhere(list[str]):
    """A list of folders that stays empty."""

    def extend(self, more: Any) -> None:
        """Leaves ``more`` out."""

    def __bool__(self) -> bool:
        return True  # Ray takes a list of its own in the place of one that is empty


def job_without_folders() -> Any:
    """A job for ``ray.init`` whose workers look for modules where their Python does, and nowhere before.

    Ray would search the folder of the driver's script and its working directory first, where a file may have the name
    of a module of Python, raysim or a library. Our actors search these last; see
    :mod:`raysim.process.importing`. A Ray without this argument searches them first.
    """
    from ray.job_config import JobConfig

    try:
        return JobConfig(_py_driver_sys_path=_Nowhere())
    except TypeError:
        return JobConfig()


def reread_authentication() -> None:
    """Make Ray in this process read ``RAY_AUTH_MODE`` and the token again, which it reads once and keeps.

    A Ray without these names has what it read when it was imported.
    """
    settings, token = read("settings"), read("token")
    if settings is not None and token is not None:
        settings.initialize("")
        token.instance().reset_cache()


def ended_parts() -> list[str]:
    """The essential processes, raylet and GCS, that have ended, of a Ray that this process has started.

    Of a Ray without this name nothing is known: it notices itself, some seconds later.
    """
    ended = getattr(read("node"), "dead_processes", list)
    return [kind for kind, _ in ended() if kind in ("raylet", "gcs_server")]
