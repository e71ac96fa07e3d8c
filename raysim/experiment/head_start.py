"""A run that begins in this process while the actors of a standing Ray come up, which then take over.

Connecting to a cluster and starting processes there takes seconds, a round of a small run milliseconds. Placement
changes no number, so the results are those of a run that has waited for its actors.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence

from raysim.cluster.connection import connected, live_nodes
from raysim.cluster.joining import Joining
from raysim.config.sections.resources import ResourcesSection
from raysim.core import host
from raysim.core.aside import Aside
from raysim.core.errors import ResourceError
from raysim.engine.cadence import Cadence, Every
from raysim.engine.coordinator import JobRun
from raysim.engine.job import Event, Job, Outcome, RunState
from raysim.engine.pool import Pool
from raysim.experiment.session import ACTOR_START_SECONDS, InProcess, OnRay, place_live, silent
from raysim.strategies.base import Ids

FIRST_SECONDS = 0.5
"""How long the first round has this process to itself: importing Ray would hold it up."""

LOOK_SECONDS = 0.05
"""Between two looks at how far the actors are."""


@contextlib.contextmanager
def open_head_start(rows: Ids, resources: ResourcesSection, names: Sequence[str], verbose: bool) -> Iterator[HeadStart]:
    """As :func:`raysim.experiment.session.open_session` on the Ray at ``RAY_ADDRESS``, without waiting for it."""
    with host.threads(1):
        session = HeadStart(rows, resources, names, verbose)
        try:
            yield session
        finally:
            session.close()


class HeadStart:
    """Plays jobs in this process until the actors are up, and there from then on."""

    where = "this process, until the cluster's actors are up"
    dashboard: str | None = None

    def __init__(self, rows: Ids, resources: ResourcesSection, names: Sequence[str], verbose: bool) -> None:
        self._rows, self._resources, self._names, self._verbose = rows, resources, names, verbose
        self._here = InProcess(rows, resources)
        self.pool: Pool = self._here.pool
        self.warning = self._here.warning
        self._joining: Joining | None = None
        self._there: OnRay | None = None
        self._deadline = 0.0
        self._up = False

    def run(
        self,
        job: Job,
        since: RunState | None = None,
        every: Every = 0,
        say: Callable[[str], None] = silent,
    ) -> Iterator[Event]:
        if not self._up:
            since = yield from self._begin(job, since, every)
            if since is None:
                return
            assert self._there is not None
            say(f"after round {since.round}: {self._there.where}")
            if self._there.warning:
                say(f"warning: {self._there.warning}")
        assert self._there is not None
        yield from self._there.run(job, since, every, say)

    def close(self) -> None:
        """End the actors, and leave the cluster."""
        if self._there is not None:
            self._there.close()
        if self._joining is not None:
            self._joining.end()

    def _begin(self, job: Job, since: RunState | None, every: Every) -> Generator[Event, None, RunState | None]:
        """Play here; returns from where the actors go on, or None where the job has come to its end before.

        Raises also what they and their cluster refuse.
        """
        cadence, left = _Cadence(every), threading.Event()
        aside = Aside(_until(JobRun(self._here.pool, job, since).events(cadence), cadence, left))
        state, seconds, heard = None, FIRST_SECONDS, time.monotonic()
        try:
            while not aside.over:
                events = aside.take(seconds)
                if events:
                    heard = time.monotonic()
                elif time.monotonic() - heard > self._resources.timeout:
                    raise ResourceError(
                        f"resources.timeout: no event of a round within {self._resources.timeout:g} s, which this "
                        "process plays while the actors come up"
                    )
                for event in events:
                    if isinstance(event, Outcome):
                        self._check_cluster()
                        state = None
                    elif isinstance(event, RunState):
                        state = event
                        if not cadence.on:
                            continue
                    yield event
                seconds = LOOK_SECONDS
                if not cadence.handing_over.is_set() and self._comes_up():
                    cadence.handing_over.set()
        finally:
            left.set()
        return state

    def _comes_up(self) -> bool:
        """See to it that the actors come up; whether they are."""
        if self._joining is None:
            self._joining = Joining(connected(self._verbose))
        if self._there is None:
            if not self._joining.done:
                return False
            self._joined()
            self._there = OnRay(self._rows, self._resources, self._names)
            self._deadline = time.monotonic() + ACTOR_START_SECONDS
        if self._there.arrived() or time.monotonic() > self._deadline:
            self._there.wait(max(0.0, self._deadline - time.monotonic()))
            self._up = True
        return self._up

    def _check_cluster(self) -> None:
        """Raise what the cluster refuses, as if the job had waited for its actors."""
        if self._there is None:
            self._joining = self._joining or Joining(connected(self._verbose))
            self._joined()
            place_live(self._rows, self._resources, self._names, live_nodes())

    def _joined(self) -> None:
        assert self._joining is not None
        self._joining.wait()
        host.handle_again(signal.SIGTERM)


class _Cadence(Cadence):
    """Has a checkpoint made also where the actors take over."""

    def __init__(self, every: Every) -> None:
        super().__init__(every)
        self.handing_over = threading.Event()

    def due(self, round: int) -> bool:
        return super().due(round) or self.handing_over.is_set()


def _until(events: Iterator[Event], cadence: _Cadence, left: threading.Event) -> Iterator[Event]:
    """Events until others go on from a checkpoint, or nobody hears them any more."""
    for event in events:
        yield event
        if left.is_set() or (isinstance(event, RunState) and cadence.handing_over.is_set()):
            return
