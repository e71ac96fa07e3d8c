"""The driver's side of the fork server, of which the workers of a Ray that is started here are forks."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from raysim.cluster.ray_private import IMPORTED_BY_WORKERS
from raysim.core.package import FOLDER

MODULES = (
    *IMPORTED_BY_WORKERS,
    "pyarrow.json",
    "starlette.datastructures",
    "threadpoolctl",
    "scipy.linalg",
    "raysim.cluster.pool",
    "raysim.cluster.coordinator",
    "raysim.training.kernels.logistic",
)
"""What Ray imports in a worker once it is connected, and what hospitals and coordinators import; what few need, such
as torch, each imports for itself."""

OF_RUNS = (*MODULES, "raysim.experiment.run_actors", "raysim.experiment.comparison")
"""The same of workers that play whole runs."""

WAITING = 1024
"""Workers that may ask before one is answered."""

ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
"""Threads do not live on in a fork; where an actor may have more, it says so when it is there."""


@contextlib.contextmanager
def fork_server(modules: Sequence[str]) -> Iterator[list[str]]:
    """The command that, put before Ray's for a worker, makes a fork of it; empty where the system has none.

    The server is there with the context, and imports ``modules`` meanwhile, in the environment that Ray's processes
    will have.
    """
    if sys.platform != "linux":
        yield []
        return
    folder = tempfile.mkdtemp(prefix="raysim-")  # of mode 0700: nobody else can ask
    try:
        address = os.path.join(folder, "workers")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(address)
            listening.listen(WAITING)
            program = [sys.executable, "-P", str(Path(__file__).with_name("fork_server.py"))]
            server = subprocess.Popen(
                [*program, str(listening.fileno()), str(FOLDER), *modules],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[listening.fileno()],
                env=os.environ | ONE_THREAD,
            )
        try:
            yield [sys.executable, "-I", "-S", str(Path(__file__).with_name("worker_start.py")), address]
        finally:
            server.communicate()  # closes its input, which ends it
    finally:
        shutil.rmtree(folder, ignore_errors=True)
