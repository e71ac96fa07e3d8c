"""The coordinator as a Ray actor, and an iterator that runs on a background thread."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar

from raysim.core.importing import search_only, search_path
from raysim.engine.job import Job
from raysim.engine.run_state import Event, RunState
from raysim.engine.server.cadence import Every
from raysim.engine.server.coordinator import JobRun
from raysim.engine.server.pool import Pool

PAUSE = 0.05


class CoordinatorActor:
    """A Ray actor that coordinates the rounds of jobs at the hospitals of ``pool``."""

    def __init__(self, folders: Sequence[str], pool: Pool) -> None:
        search_only(folders)
        self._pool = pool

    def run(self, job: Job, since: RunState | None, every: Every) -> Iterator[list[Event]]:
        """Run :meth:`JobRun.events` on a background thread.

        Yields lists of new events, at least ``PAUSE`` seconds apart.
        """
        events_ahead = BackgroundIterator(JobRun(self._pool, job, since).events(every))
        while events := events_ahead.take():
            yield events
            if not events_ahead.over:
                time.sleep(PAUSE)

    def ready(self) -> None:
        """Return nothing; the reply shows that the process is running."""


def coordinate(pool: Pool) -> Any:
    """Start an actor on this node that coordinates the hospitals of ``pool``."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # The coordinator only adds up; it must be able to run beside actors that hold every core. It ships rows to
    # nodes that cannot read them, so it must be where this process has built the federation.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(CoordinatorActor).remote(search_path(), pool)


T = TypeVar("T")


class BackgroundIterator(Generic[T]):
    """Runs the iterator ``items`` to its end on a background thread; :meth:`take` returns new items."""

    def __init__(self, items: Iterator[T]) -> None:
        self._queue: SimpleQueue[T | _End] = SimpleQueue()
        self._end: _End | None = None
        Thread(target=self._run, args=(items,), daemon=True).start()

    @property
    def over(self) -> bool:
        """Return whether the iterator has ended without an error and all its items have been taken."""
        return self._end is not None and self._end.error is None

    def take(self, seconds: float | None = None) -> list[T]:
        """Wait for an item, then return all available items.

        The list is empty after the last item, or if there is no item within ``seconds``. Raises the iterator's error
        once all items before it have been taken.
        """
        taken: list[T] = []
        while self._end is None and (not taken or not self._queue.empty()):
            try:
                item = self._queue.get(timeout=seconds)
            except Empty:
                return taken
            if isinstance(item, _End):
                self._end = item
            else:
                taken.append(item)
        if not taken and self._end is not None and self._end.error is not None:
            raise self._end.error
        return taken

    def _run(self, items: Iterator[T]) -> None:
        error = None
        try:
            for item in items:
                self._queue.put(item)
        except BaseException as raised:  # raised again by take
            error = raised
        self._queue.put(_End(error))


class _End:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error
