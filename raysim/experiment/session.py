"""Where jobs run: on Ray (started here, or the cluster at ``RAY_ADDRESS``) or in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from raysim.cluster.answers import cause_of
from raysim.cluster.connection import connected, dashboard_address, live_nodes
from raysim.cluster.coordinator import coordinate
from raysim.cluster.placement import Placement, balance, check_named, describe, place
from raysim.cluster.pool import LocalPool, RayPool
from raysim.cluster.room import reserve
from raysim.config.nodes import Node, parse_nodes
from raysim.config.sections.resources import ResourcesSection
from raysim.core import host
from raysim.core.errors import ResourceError
from raysim.engine.job import AHEAD, Job, Round
from raysim.engine.run_state import Event, RunState
from raysim.engine.server.cadence import Every
from raysim.engine.server.coordinator import JobRun
from raysim.engine.server.pool import Pool
from raysim.strategies.base import Ids

ACTOR_START_SECONDS = 300.0
"""Seconds that hospital actors may take to start before the run ends with an error."""

RESTARTS = 3
"""Largest number of restarts of a job's coordinator after its process was lost."""

RESTART_SECONDS = 60.0
"""Seconds that a restart may take before Ray itself is considered lost."""

SILENCE = 3.0
"""A coordinator is lost if it is silent for this number times the sum of ``resources.timeout`` and
:data:`RESTART_SECONDS`."""


def longest_silence(resources: ResourcesSection) -> float:
    """Return after how many seconds without a message a coordinator is considered lost."""
    return SILENCE * (resources.timeout + RESTART_SECONDS)


def silent(text: str) -> None:
    """Ignore ``text``, a line for the user."""


class Session(Protocol):
    """Running hospitals and a coordinator, which can execute jobs one after the other."""

    where: str
    """Where the job is executed, such as ``2 actors, 104 hospitals each``."""
    warning: str | None
    dashboard: str | None
    """The address of Ray's dashboard; None if there is none."""
    pool: Pool
    """The running hospitals, for callers that coordinate rounds themselves."""

    def run(
        self, job: Job, since: RunState | None = None, every: Every = 0, say: Callable[[str], None] = silent
    ) -> Iterator[Event]:
        """Execute a job; see :meth:`JobRun.events`. ``say`` receives lines on lost coordinators."""


@contextlib.contextmanager
def open_session(
    rows: Ids,
    resources: ResourcesSection,
    *,
    in_process: bool,
    verbose: bool,
    names: Sequence[str] = (),
) -> Iterator[Session]:
    """Start the hospitals and yield a session for jobs.

    - ``rows [N]``: each hospital's number of rows.
    - ``names``: the names of the hospitals, to which ``resources.per_hospital`` refers.

    Raises ``ResourceError`` if the configured resources do not exist.
    """
    if in_process:
        check_named(resources, names)
        with host.threads(1):  # more threads than cores were 30 times slower
            yield InProcess(rows, resources)
        return
    with connected(verbose, resources.dashboard):
        session: OnRay | None = None
        try:
            session = OnRay(rows, resources, names)
            session.wait(ACTOR_START_SECONDS)
            yield session
        finally:
            if session is not None:
                session.end()


class InProcess:
    """A session that computes everything in this process without further processes."""

    dashboard: str | None = None

    def __init__(self, rows: Ids, resources: ResourcesSection) -> None:
        groups = 1
        if resources.hospitals_per_actor != "auto":
            groups = int(np.ceil(len(rows) / int(resources.hospitals_per_actor)))
        device = "cpu" if resources.device == "auto" else resources.device
        pool = LocalPool(Placement(balance(rows, groups), cpus=1, gpus=0), device)
        self.pool: Pool = pool
        self.where = "this process"
        self.warning = pool.warning

    def run(
        self, job: Job, since: RunState | None = None, every: Every = 0, say: Callable[[str], None] = silent
    ) -> Iterator[Event]:
        return JobRun(self.pool, job, since).events(every)


class OnRay:
    """A session of hospital actors and a coordinator actor, on the Ray to which this process is connected.

    Call :meth:`wait` before :meth:`run`.
    """

    where: str
    warning: str | None
    dashboard: str | None

    def __init__(self, rows: Ids, resources: ResourcesSection, names: Sequence[str]) -> None:
        """Start the actors."""
        placement, nodes = place_live(rows, resources, names, live_nodes())
        # Without a GPU share, torch is not imported only to find that there is no device.
        uses_gpus = any(placement.share(actor)[1] for actor in range(len(placement.served)))
        device = "cpu" if resources.device == "auto" and not uses_gpus else resources.device
        self._group = reserve(placement, nodes)
        self._pool = RayPool(placement, device, resources.timeout, resources.data, self._group)
        self._silence = longest_silence(resources)
        self.pool: Pool = self._pool
        self.coordinator = coordinate(self.pool)
        self.actors = self._pool.actors

    def wait(self, seconds: float) -> None:
        """Wait until the hospital actors are ready. Raises ``ResourceError`` if this takes more than ``seconds``."""
        self.warning = self._pool.wait(seconds)
        self.dashboard = dashboard_address()
        self.where = describe([len(ids) for ids in self._pool.served], len(set(self._pool.places)))

    def run(
        self, job: Job, since: RunState | None = None, every: Every = 0, say: Callable[[str], None] = silent
    ) -> Iterator[Event]:
        reported, restarts = 0, 0
        while True:
            try:
                for event in self._events(job, since, every):
                    if isinstance(event, RunState):
                        since = event
                    elif isinstance(event, Round):
                        if event.round <= reported:  # repeated
                            continue
                        reported = event.round
                    yield event
                return
            except _Lost as lost:
                if job.redraws_noise:
                    begun = 0 if since is None else since.round
                    reached = min(max(reported, begun) + AHEAD, job.rounds)
                    job = replace(job, earlier=job.earlier.stopped(begun, reached))
                restarts += 1
                if restarts > RESTARTS:
                    raise ResourceError(
                        f"resources: the coordinator was lost {restarts} times ({lost}); check that there is enough "
                        "memory for it"
                    ) from None
                restarts += self._restart(str(lost), say)
                where = f"round {since.round}" if since is not None else "the start"
                say(f"the coordinator was lost ({lost}); a new coordinator resumes from {where}")

    def _events(self, job: Job, since: RunState | None, every: Every) -> Iterator[Event]:
        """Yield the coordinator's events. Raises :class:`_Lost` if it has died or is silent."""
        import ray

        stream = self.coordinator.run.options(num_returns="streaming").remote(job, since, every)
        while True:
            try:
                if not ray.wait([stream], timeout=self._silence)[0]:
                    raise _Lost(f"silent for {self._silence:g} s")
                events = ray.get(next(stream))
            except StopIteration:
                return
            except ray.exceptions.RayTaskError as error:
                raise cause_of(error) from None
            except ray.exceptions.RayError as error:
                raise _Lost(type(error).__name__) from None
            yield from events

    def end(self) -> None:
        """End the actors."""
        import ray

        for actor in (*self.actors, self.coordinator) if self.actors else ():
            ray.kill(actor)
        self.actors = []
        if self._group is not None:
            ray.util.remove_placement_group(self._group)
            self._group = None

    def _restart(self, lost: str, say: Callable[[str], None]) -> int:
        """Start a new coordinator in place of one that was lost for the reason ``lost``.

        Returns how many new coordinators were lost during their start (0 or 1).
        """
        import ray

        for early in (0, 1):
            try:
                ray.kill(self.coordinator)
                self.coordinator = coordinate(self.pool)
                ray.get(self.coordinator.ready.remote(), timeout=RESTART_SECONDS)
            except (ray.exceptions.RayError, OSError, RuntimeError) as error:
                if early or not isinstance(error, ray.exceptions.ActorDiedError):
                    raise ResourceError(
                        f"resources: the coordinator was lost ({lost}) and cannot be started again "
                        f"({type(error).__name__}); restart Ray"
                    ) from None
                say(f"the coordinator was lost ({type(error).__name__}) while it started")
            else:
                break
        return early


def place_live(
    rows: Ids, resources: ResourcesSection, names: Sequence[str], live: tuple[Node, ...]
) -> tuple[Placement, tuple[Node, ...]]:
    """Return the placement of hospitals on actors and nodes, and the nodes to which it refers.

    ``rows [N]`` are the hospitals' numbers of rows. If the actors do not fit on the ``live`` nodes, the nodes that the
    autoscaler may start (``resources.autoscale``) are used as well.
    """
    try:
        return place(rows, resources, live, names), live
    except ResourceError:
        if resources.autoscale is None:
            raise
    grown = (*live, *parse_nodes(resources.autoscale, started=False))
    return place(rows, resources, grown, names), grown


class _Lost(Exception):
    """The coordinator's process no longer answers; the message says how this was detected."""
