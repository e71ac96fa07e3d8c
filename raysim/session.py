"""Where a job runs: on Ray (started here, or the cluster that ``RAY_ADDRESS`` names) or in this process."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from raysim.config import Resources
from raysim.coordinator import Coordinator, Job, Outcome, Round
from raysim.errors import ResourceError
from raysim.placement import Placement, balance, describe, place
from raysim.pool import LocalPool, Pool, RayPool, cause_of
from strategies.base import Ids

ACTOR_START_SECONDS = 120.0
"""How long hospital actors may take to come up before the run ends with an error instead of waiting on."""


class Session(Protocol):
    """Standing hospitals and a coordinator, ready for jobs."""

    where: str
    """A short text on who computes: ``2 actors, 104 hospitals each``."""
    warning: str | None
    pool: Pool
    """The hospitals, for those who bring a coordinator of their own."""

    def run(self, job: Job) -> Iterator[Round | Outcome]:
        """Play a job; see :meth:`Coordinator.run`."""
        ...


@contextlib.contextmanager
def open_session(rows: Ids, resources: Resources, *, in_process: bool, verbose: bool) -> Iterator[Session]:
    """Bring up the hospitals, which have ``rows [N]`` stays. On leaving, what was started here is shut down.

    Raises ``ResourceError`` where the resources asked for do not exist.
    """
    if in_process:
        yield _InProcess(rows, resources)
        return
    import ray

    started = not ray.is_initialized()
    if started:
        _start_ray(verbose)
    try:
        yield _OnRay(rows, resources)
    finally:
        if started:
            ray.shutdown()


class _InProcess:
    def __init__(self, rows: Ids, resources: Resources) -> None:
        groups = 1
        if resources.hospitals_per_actor != "auto":
            groups = int(np.ceil(len(rows) / int(resources.hospitals_per_actor)))
        device = "cpu" if resources.device == "auto" else resources.device
        pool = LocalPool(Placement(balance(rows, groups), cpus=1, gpus=0), device)
        self.pool: Pool = pool
        self._coordinator = Coordinator(pool)
        self.where = "this process"
        self.warning = pool.warning

    def run(self, job: Job) -> Iterator[Round | Outcome]:
        return self._coordinator.run(job)


class _OnRay:
    def __init__(self, rows: Ids, resources: Resources) -> None:
        import ray

        total = ray.cluster_resources()
        placement = place(rows, resources, total.get("CPU", 0.0), total.get("GPU", 0.0))
        # Without a GPU share nobody should pay for importing torch just to learn that there is no device.
        device = "cpu" if resources.device == "auto" and not placement.gpus else resources.device
        pool = RayPool(placement, device)
        # The coordinator only adds up; it must be able to run beside actors that hold every core.
        self._coordinator = ray.remote(num_cpus=0)(Coordinator).remote(pool)
        self.pool: Pool = pool
        self.actors = pool.actors
        self.warning = pool.wait(ACTOR_START_SECONDS)
        self.where = describe([len(ids) for ids in placement.served])

    def run(self, job: Job) -> Iterator[Round | Outcome]:
        import ray

        for ref in self._coordinator.run.options(num_returns="streaming").remote(job):
            try:
                yield ray.get(ref)
            except ray.exceptions.RayTaskError as error:
                raise cause_of(error) from None


@dataclass(frozen=True)
class _Quiet:
    """Keeps Ray's chatter out of sight."""

    verbose: bool

    def options(self) -> dict[str, Any]:
        if self.verbose:
            return {"log_to_driver": True}
        return {"log_to_driver": False, "logging_level": logging.ERROR}


def _start_ray(verbose: bool) -> None:
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray's announced default, which also silences the announcement.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    address = os.environ.get("RAY_ADDRESS")
    options = _Quiet(verbose).options()
    try:
        if address:
            ray.init(address=address, **options)
        else:
            ray.init(include_dashboard=False, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = f"RAY_ADDRESS {address}" if address else "a local Ray"
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ResourceError(f"resources: {where} cannot be used ({reason}); check 'ray status' or unset it") from None
