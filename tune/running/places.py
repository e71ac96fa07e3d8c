"""Where trials compute: on hospital actors that they share, or each in a process of its own.

The messages of a small run cost more than its rounds, and trials are many. Placement changes no number.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from raysim.cluster.answers import cause_of
from raysim.cluster.connection import connected, live_nodes
from raysim.cluster.forked import OF_TRIALS
from raysim.config.sections.resources import ResourcesSection
from raysim.core import blas
from raysim.core.compute import settle
from raysim.data.federation import Federation
from raysim.engine.cadence import Every
from raysim.engine.job import Event, Job, RunState
from raysim.engine.pool import Pool
from raysim.experiment.run_placement import Load, at_once
from raysim.experiment.session import InProcess, Session, open_session, silent
from raysim.strategies.base import Ids
from raysim.strategies.shared.importing import search_only, search_path
from raysim.tune.plan import SweepPlan


@dataclass(frozen=True, eq=False)
class Hospitals:
    """The hospitals of a trial, as they travel to its process."""

    shared: Pool | None
    """Hospital actors that all trials share; None: the trial's process has all hospitals itself."""
    rows: Ids
    """Rows of each hospital, ``[N]``."""
    resources: ResourcesSection

    def pool(self) -> Pool:
        """The pool of hospitals for a trial in this process."""
        if self.shared is not None:
            return self.shared
        return InProcess(self.rows, self.resources.model_copy(update={"device": "cpu"})).pool

    @property
    def cpus(self) -> float:
        """CPUs that a trial holds; none where hospital actors hold them."""
        return 0.0 if self.shared is not None else self.resources.cpus_per_actor or 1.0


class InWorker(InProcess):
    """Plays each job in a worker of Ray on this node, with the same bits.

    Workers have imported what strategies need, which takes this process a second.
    """

    def __init__(self, rows: Ids, resources: ResourcesSection) -> None:
        super().__init__(rows, resources)
        self._rows, self._resources = rows, resources

    def run(
        self,
        job: Job,
        since: RunState | None = None,
        every: Every = 0,
        say: Callable[[str], None] = silent,
    ) -> Iterator[Event]:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        worker = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=here)(_played)
        asked = worker.remote(search_path(), blas.code(), self._rows, self._resources, job, since, every)
        try:
            events: list[Event] = ray.get(asked)
        except ray.exceptions.RayTaskError as error:
            raise cause_of(error) from None
        except ray.exceptions.RayError:  # the worker was lost
            yield from super().run(job, since, every, say)
        else:
            yield from events


def _played(
    folders: Sequence[str],
    code: str | None,
    rows: Ids,
    resources: ResourcesSection,
    job: Job,
    since: RunState | None,
    every: Every,
) -> list[Event]:
    """Runs in a worker: all events of a job; see :class:`InWorker`."""
    search_only(folders)
    settle(1, code)
    return list(InProcess(rows, resources).run(job, since, every))


@dataclass(frozen=True, eq=False)
class Places:
    """Where the trials of a sweep compute."""

    hospitals: Hospitals
    at_once: int
    """How many trials run at a time."""
    session: Session
    """Plays runs that are not trials."""
    where: str
    """A short text on who computes."""


@contextlib.contextmanager
def open_places(
    plan: SweepPlan, resources: ResourcesSection, federation: Federation, left: int, verbose: bool
) -> Iterator[Places]:
    """Places for the ``left`` trials of a sweep of federations such as this one. On leaving, what was started ends.

    Raises ``ResourceError`` where the resources asked for do not exist.
    """
    rows, asked = federation.totals, plan.sweep.concurrent
    with connected(verbose, resources.dashboard, OF_TRIALS), contextlib.ExitStack() as standing:
        load = Load(min(asked or left, left), federation.X.size, len(rows) * plan.parameters)
        count = at_once(resources, live_nodes(), load)
        whole = count > 1 and count >= (asked or 0)
        opened = open_session(rows, resources, in_process=whole, verbose=verbose, names=federation.hospitals)
        session = standing.enter_context(opened)
        if whole:
            alone = InWorker(rows, resources)
            yield Places(Hospitals(None, rows, resources), count, alone, f"{count} trials at a time, a process each")
            return
        pool = session.pool
        # Enough that hospital actors never wait while a coordinator adds up.
        count = min(asked or len(pool.served) + 2, left)
        yield Places(Hospitals(pool, rows, resources), count, session, f"{session.where}; {count} trials at a time")
