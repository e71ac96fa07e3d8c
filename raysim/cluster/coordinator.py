"""The coordinator as a Ray actor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from raysim.engine.cadence import Every
from raysim.engine.coordinator import Coordinator
from raysim.engine.job import Event, Job, RunState
from raysim.engine.pool import Pool
from raysim.strategies.shared.importing import search_only


class CoordinatorActor:
    """A Ray actor around a :class:`Coordinator`. ``folders`` may hold modules of the user's, which jobs refer to."""

    def __init__(self, folders: Sequence[str], pool: Pool) -> None:
        search_only(folders)
        self._coordinator = Coordinator(pool)

    def run(self, job: Job, since: RunState | None, every: Every) -> Iterator[Event]:
        """See :meth:`Coordinator.run`."""
        yield from self._coordinator.run(job, since, every)

    def ready(self) -> None:
        """Answers once the process is up."""
