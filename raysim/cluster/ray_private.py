"""The four private names of Ray that raysim reads.

If a version of Ray lacks one of them, raysim works without it. Ray 2.52 was the first version with authentication
tokens.
"""

from __future__ import annotations

import importlib
from typing import Any

NAMES = {
    "node": "ray._private.worker._global_node",
    "settings": "ray._raylet.Config",
    "token": "ray._raylet.AuthenticationTokenLoader",
}
"""The import paths of three private names of Ray. The fourth private name is the argument ``_py_driver_sys_path`` of
``JobConfig``."""


def read(what: str) -> Any:
    """Return the part of Ray that ``NAMES`` describes under ``what``; None if Ray does not have it."""
    module, _, name = NAMES[what].rpartition(".")
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


class _Nowhere(list[str]):
    """A list of folders to which nothing can be added."""

    def extend(self, more: Any) -> None:
        """Ignore ``more``."""

    def __bool__(self) -> bool:
        return True  # Ray takes a list of its own in the place of one that is empty


def job_without_folders() -> Any:
    """Return a job for ``ray.init`` whose workers import modules only from Python's own folders.

    By default, Ray would first search the driver's folders, in which a file may have the name of a module of Python,
    raysim or a library. raysim's actors search these folders last; see :mod:`raysim.core.importing`.
    """
    from ray.job_config import JobConfig

    try:
        return JobConfig(_py_driver_sys_path=_Nowhere())
    except TypeError:
        return JobConfig()


def reread_authentication() -> None:
    """Make Ray in this process read ``RAY_AUTH_MODE`` and the token again, because it caches them."""
    settings, token = read("settings"), read("token")
    if settings is not None and token is not None:
        settings.initialize("")
        token.instance().reset_cache()


def ended_parts() -> list[str]:
    """Return the essential processes of Ray (raylet, GCS) that this process started and that have ended.

    The result is always empty if this version of Ray does not list its ended processes.
    """
    ended = getattr(read("node"), "dead_processes", list)
    return [kind for kind, _ in ended() if kind in ("raylet", "gcs_server")]
