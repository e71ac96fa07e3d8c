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
"""Seconds that pass before Ray is imported, which would delay the first round."""

LOOK_SECONDS = 0.05
"""Seconds between two looks at whether the actors are up."""


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
    """Plays jobs in this process until the actors are up, and on the actors from then on."""

    where = "this process, until the cluster's actors are up"
    dashboard: str | None = None

    def __init__(self, rows: Ids, resources: ResourcesSection, names: Sequence[str], verbose: bool) -> None:
        self._rows, self._resources, self._names, self._verbose = rows, resources, names, verbose
        self._local = InProcess(rows, resources)
        self.pool: Pool = self._local.pool
        self.warning = self._local.warning
        self._joining: Joining | None = None
        self._remote: OnRay | None = None
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
            assert self._remote is not None
            say(f"after round {since.round}: {self._remote.where}")
            if self._remote.warning:
                say(f"warning: {self._remote.warning}")
        assert self._remote is not None
        yield from self._remote.run(job, since, every, say)

    def close(self) -> None:
        """End the actors, and leave the cluster."""
        if self._remote is not None:
            self._remote.close()
        if self._joining is not None:
            self._joining.end()

    def _begin(self, job: Job, since: RunState | None, every: Every) -> Generator[Event, None, RunState | None]:
        """Play in this process; returns the state from which the actors go on, or None where the job ended before.

        Also raises what the actors or their cluster refuse.
        """
        cadence, abandoned = _Cadence(every), threading.Event()
        aside = Aside(_until(JobRun(self._local.pool, job, since).events(cadence), cadence, abandoned))
        state, seconds, last_event = None, FIRST_SECONDS, time.monotonic()
        try:
            while not aside.over:
                events = aside.take(seconds)
                if events:
                    last_event = time.monotonic()
                elif time.monotonic() - last_event > self._resources.timeout:
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
            abandoned.set()
        return state

    def _comes_up(self) -> bool:
        """Take the next step in bringing up the actors; returns whether they are up."""
        if self._joining is None:
            self._joining = Joining(connected(self._verbose))
        if self._remote is None:
            if not self._joining.done:
                return False
            self._joined()
            self._remote = OnRay(self._rows, self._resources, self._names)
            self._deadline = time.monotonic() + ACTOR_START_SECONDS
        if self._remote.arrived() or time.monotonic() > self._deadline:
            self._remote.wait(max(0.0, self._deadline - time.monotonic()))
            self._up = True
        return self._up

    def _check_cluster(self) -> None:
        """Raise what the cluster refuses, as if the job had waited for its actors."""
        if self._remote is None:
            self._joining = self._joining or Joining(connected(self._verbose))
            self._joined()
            place_live(self._rows, self._resources, self._names, live_nodes())

    def _joined(self) -> None:
        assert self._joining is not None
        self._joining.wait()
        host.handle_again(signal.SIGTERM)


class _Cadence(Cadence):
    """Also asks for a checkpoint when the actors are to take over."""

    def __init__(self, every: Every) -> None:
        super().__init__(every)
        self.handing_over = threading.Event()

    def due(self, round: int) -> bool:
        return super().due(round) or self.handing_over.is_set()


def _until(events: Iterator[Event], cadence: _Cadence, abandoned: threading.Event) -> Iterator[Event]:
    """The events up to the checkpoint from which the actors go on, or until these events are ``abandoned``."""
    for event in events:
        yield event
        if abandoned.is_set() or (isinstance(event, RunState) and cadence.handing_over.is_set()):
            return
