"""The processes that compute trials: shared hospital actors, or one process for each trial.

For small runs one process per trial is faster; results are the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from raysim.cluster.connection import connected, live_nodes
from raysim.cluster.room import await_room
from raysim.config.sections.resources import ResourcesSection
from raysim.data.federation import Federation
from raysim.engine.server.pool import Pool
from raysim.experiment.run_placement import Load, at_once
from raysim.experiment.session import InProcess, Session, open_session
from raysim.strategies.base import Ids
from raysim.tune.plan import SweepPlan


@dataclass(frozen=True, eq=False)
class Hospitals:
    """The hospitals of a trial: in actors that all trials share, or in the process of the trial."""

    shared: Pool | None
    """The hospital actors that all trials share; None: the hospitals are in the trial's process."""
    rows: Ids
    """The number of rows of each hospital."""
    resources: ResourcesSection

    def pool(self) -> Pool:
        """Return the pool of hospitals for the trial that runs in this process."""
        if self.shared is not None:
            return self.shared
        return InProcess(self.rows, self.resources.model_copy(update={"device": "cpu"})).pool

    @property
    def cpus(self) -> float:
        """Return the number of CPUs that a trial reserves; 0 if hospital actors reserve them."""
        return 0.0 if self.shared is not None else self.resources.cpus_per_actor or 1.0


@dataclass(frozen=True, eq=False)
class Places:
    """The processes that compute the trials of a sweep."""

    hospitals: Hospitals
    at_once: int
    """The largest number of trials that run concurrently."""
    session: Session
    """The session for the recommended trial's runs on test rows."""
    where: str


@contextlib.contextmanager
def open_places(
    plan: SweepPlan, resources: ResourcesSection, federation: Federation, left: int, verbose: bool
) -> Iterator[Places]:
    """Start the processes that compute the ``left`` remaining trials of a sweep.

    The number of processes depends on the size of ``federation``, the data of one seed. Processes end when the context
    exits. Raises ``ResourceError`` if the requested resources do not exist.
    """
    rows, asked = federation.totals, plan.sweep.concurrent
    with connected(verbose, resources.dashboard), contextlib.ExitStack() as standing:
        load = Load(min(asked or left, left), federation.X.size, len(rows) * plan.parameters)
        count = at_once(resources, live_nodes(), load)
        whole = count > 1 and count >= (asked or 0)
        opened = open_session(rows, resources, in_process=whole, verbose=verbose, names=federation.hospitals)
        session = standing.enter_context(opened)
        if whole:
            await_room(resources.cpus_per_actor or 1)
            alone = InProcess(rows, resources)
            yield Places(Hospitals(None, rows, resources), count, alone, f"{count} trials at a time, a process each")
            return
        pool = session.pool
        # Enough trials that hospital actors never wait while a coordinator aggregates.
        count = min(asked or len(pool.served) + 2, left)
        yield Places(Hospitals(pool, rows, resources), count, session, f"{session.where}; {count} trials at a time")
