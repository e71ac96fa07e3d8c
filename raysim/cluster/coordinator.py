"""The coordinator as a Ray actor."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any

from raysim.core import blas
from raysim.engine.cadence import Every
from raysim.engine.coordinator import Coordinator
from raysim.engine.job import Event, Job, RunState
from raysim.engine.pool import Pool
from raysim.strategies.shared.importing import search_only, search_path

PAUSE = 0.05
"""Seconds between two messages of events."""


class CoordinatorActor:
    """A Ray actor around a :class:`Coordinator`. ``folders`` may hold modules of the user's, which jobs refer to.

    ``code``: see :func:`raysim.core.blas.follow`.
    """

    def __init__(self, folders: Sequence[str], code: str | None) -> None:
        search_only(folders)
        blas.follow(code)

    def serve(self, pool: Pool) -> None:
        """From now on coordinate the hospitals of ``pool``."""
        self._coordinator = Coordinator(pool)

    def run(self, job: Job, since: RunState | None, every: Every) -> Iterator[list[Event]]:
        """See :meth:`Coordinator.run`; the events that there are every ``PAUSE`` seconds.

        The job is played on a thread of its own, so that no round waits until its events have left.
        """
        queue: SimpleQueue[Event | _End] = SimpleQueue()
        Thread(target=self._play, args=(job, since, every, queue), daemon=True).start()
        while True:
            events: list[Event] = []
            end = None
            while end is None and (not events or not queue.empty()):
                event = queue.get()
                if isinstance(event, _End):
                    end = event
                else:
                    events.append(event)
            if events:
                yield events
            if end is not None:
                if end.error is not None:
                    raise end.error
                return
            time.sleep(PAUSE)

    def _play(self, job: Job, since: RunState | None, every: Every, queue: SimpleQueue[Event | _End]) -> None:
        error = None
        try:
            for event in self._coordinator.run(job, since, every):
                queue.put(event)
        except BaseException as raised:  # raised again by the generator, in whose place this is run
            error = raised
        queue.put(_End(error))

    def ready(self) -> None:
        """Answers once the process is up."""


class _End:
    """The job is over, or has failed."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


_begun: list[tuple[tuple[Any, ...], Any]] = []
"""One that was begun before its hospitals, with what it was begun with."""


@contextlib.contextmanager
def begun() -> Iterator[None]:
    """A coordinator's process starts at once, for the first :func:`coordinate` meanwhile to take."""
    settings = _settings()
    _begun.append((settings, _started(*settings)))
    try:
        yield
    finally:
        _begun.clear()


def coordinate(pool: Pool) -> Any:
    """An actor on this node that coordinates the hospitals of ``pool``."""
    settings, actor = _settings(), None
    if _begun:
        before, actor = _begun.pop()
        actor = actor if before == settings else None
    if actor is None:
        actor = _started(*settings)
    actor.serve.remote(pool)
    return actor


def _settings() -> tuple[Any, ...]:
    return search_path(), blas.code()


def _started(folders: Sequence[str], code: str | None) -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # The coordinator only adds up; it must be able to run beside actors that hold every core. It ships rows to
    # nodes that cannot read them, so it must be where this process has built the federation.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(CoordinatorActor).remote(folders, code)
