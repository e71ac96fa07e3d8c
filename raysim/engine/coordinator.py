"""The server of the simulation: runs jobs over a pool of hospitals."""

from __future__ import annotations

from collections.abc import Iterator

from raysim.engine.cadence import Cadence, Every
from raysim.engine.job import Event, Job, RunState
from raysim.engine.job_run import JobRun
from raysim.engine.pool import Pool


class Coordinator:
    """Runs jobs over ``pool``, one at a time."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def run(self, job: Job, since: RunState | None = None, every: Every = 0) -> Iterator[Event]:
        """Yields each round as soon as its models have been evaluated, and at last the outcome.

        Between them come checkpoints, see :class:`Cadence`; a run ``since`` one of them tells only what comes after it.
        """
        yield from JobRun(self._pool, job, since).events(Cadence(every))
