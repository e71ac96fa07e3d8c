"""Imported first in the process that others are forked from, prepares Ray for forks.

``ray.init`` starts processes of Python as forks too: see :mod:`tests.rays`. Ray reads a worker's job and the process of
its node when it is imported, and never again. And classes of actors draw their ids with the system's generator: Ray's
own, once it has drawn, draws the same ids in all forks, which then read each other's objects.
"""

from __future__ import annotations

import os
from typing import Any

from raysim.core import host
from tests import rays

with host.environment({"RAY_JOB_ID": rays.FIRST_JOB, "RAY_RAYLET_PID": str(os.getpid())}):
    import ray.actor
    from ray import ActorClassID


class FromSystem:
    """Takes the place of ``ActorClassID`` where such ids are drawn."""

    @staticmethod
    def from_random() -> ActorClassID:
        """An id."""
        return ActorClassID(os.urandom(ActorClassID.size()))


_init = ray.init


def init(*arguments: Any, **options: Any) -> Any:
    """As ``ray.init``."""
    with rays.forked():
        return _init(*arguments, **options)


ray.actor.ActorClassID = FromSystem
ray.init = init
