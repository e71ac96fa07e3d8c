"""The coordinator as a Ray actor."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from raysim.core.background import BackgroundIterator
from raysim.engine.job import Job
from raysim.engine.run_state import Event, RunState
from raysim.engine.server.cadence import Every
from raysim.engine.server.coordinator import Coordinator
from raysim.engine.server.pool import Pool
from raysim.process.importing import search_only, search_path

PAUSE = 0.05
"""Seconds between two messages of events."""


class CoordinatorActor:
    """A Ray actor with a :class:`Coordinator`. ``folders`` may hold the user's modules, which jobs refer to."""

    def __init__(self, folders: Sequence[str], pool: Pool) -> None:
        search_only(folders)
        self._coordinator = Coordinator(pool)

    def run(self, job: Job, since: RunState | None, every: Every) -> Iterator[list[Event]]:
        """Run :meth:`Coordinator.run`; yields the new events every ``PAUSE`` seconds.

        The job runs on a background thread, so that no round waits for the sending of its events.
        """
        aside = BackgroundIterator(self._coordinator.run(job, since, every))
        while events := aside.take():
            yield events
            if not aside.over:
                time.sleep(PAUSE)

    def ready(self) -> None:
        """Reply once the process is up."""


def coordinate(pool: Pool) -> Any:
    """Start an actor on this node that coordinates the hospitals of ``pool``."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # The coordinator only adds up; it must be able to run beside actors that hold every core. It ships rows to
    # nodes that cannot read them, so it must be where this process has built the federation.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(CoordinatorActor).remote(search_path(), pool)
