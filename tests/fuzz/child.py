"""A child process of ``python -m tests.fuzz``: many cases, within a bound of memory."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from raysim.cluster.connection import connected
from tests.fuzz import cases, finished_runs, stopped_runs, sweeps


def run_strategy(family: str, count: int, number: int, memory: int, home: Path, pipe: Connection) -> None:
    """Run ``count`` cases of a family, and tell what was wrong with each."""
    sys.stderr = sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # until the process ends
    os.environ["RAYSIM_CACHE"] = str(home / "cache")
    # The one Ray of all sweeps, which is not what is limited.
    with connected(verbose=False) if family == "trials" else contextlib.nullcontext():
        # What is written to, not the address space, of which Ray and torch reserve far more than they use.
        resource.setrlimit(resource.RLIMIT_DATA, (memory * 2**30, memory * 2**30))
        _draw(family, count, number, home, pipe)
    pipe.send(None)


def _draw(family: str, count: int, number: int, home: Path, pipe: Connection) -> None:
    going_on = sweeps.up_to_trials if family == "sweeps" else contextlib.nullcontext
    if family in ("sweeps", "trials"):
        drawn = sweeps.resumptions(home / family, trials=family == "trials")
    elif family == "finished":
        drawn = finished_runs.uses(home / family)
    else:
        drawn = stopped_runs.resumptions(home / family) if (home / family).exists() else getattr(cases, family)()

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn)
    def each(case: cases.Case) -> None:
        with going_on():
            pipe.send((cases.fault(case, home / f"case-{os.getpid()}"), repr(case)))

    each()
