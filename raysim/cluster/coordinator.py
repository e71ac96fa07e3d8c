"""The coordinator as a Ray actor."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from threading import Thread

from raysim.core import blas
from raysim.engine.cadence import Every
from raysim.engine.coordinator import Coordinator
from raysim.engine.job import Event, Job, RunState
from raysim.engine.pool import Pool
from raysim.strategies.shared.importing import search_only

PAUSE = 0.05
"""Seconds between two messages of events."""


class CoordinatorActor:
    """A Ray actor around a :class:`Coordinator`. ``folders`` may hold modules of the user's, which jobs refer to.

    ``code``: see :func:`raysim.core.blas.follow`.
    """

    def __init__(self, folders: Sequence[str], code: str | None, pool: Pool) -> None:
        search_only(folders)
        blas.follow(code)
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
