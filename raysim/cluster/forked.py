"""The driver's side of the fork server, from which the workers of a Ray that is started here are forked."""

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
from raysim.cluster.variables import LOCAL, QUIET
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
    "raysim.statistics.clinical.figures",
)
"""What a worker of Ray imports, and what hospitals and coordinators import. What only some workers need, such as torch,
each of them imports for itself."""

OF_RUNS = (*MODULES, "raysim.experiment.run_actors", "raysim.experiment.comparison", "--", "sklearn.cluster")
"""As :data:`MODULES`, for workers that play whole runs. Modules after ``--`` are needed only sometimes: they are
imported while no worker is asked for."""

OF_TRIALS = (
    *MODULES,
    "raysim.tune.running.trainable",
    "--",
    "scipy.stats",
    "sklearn.cluster",
    "sklearn.ensemble",
    "raysim.tune.page.importance",
)
"""As :data:`MODULES`, for workers that play trials of a sweep and draw its pages. Modules after ``--`` are needed later
or only sometimes: they are imported while no worker is asked for."""

WAITING = 1024
"""Length of the queue of workers that wait for a fork."""

ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
"""The fork server has one thread, as threads do not survive a fork; an actor that may have more starts them later."""


class ForkServer:
    """A process that workers are forked from. It imports ``modules`` at once, in the environment of Ray's processes."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._folder = tempfile.mkdtemp(prefix="raysim-")  # of mode 0700: nobody else can ask
        try:
            address = os.path.join(self._folder, "workers")
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(address)
                listening.listen(WAITING)
                program = [sys.executable, "-P", str(Path(__file__).with_name("fork_server.py"))]
                self._process = subprocess.Popen(
                    [*program, str(listening.fileno()), str(FOLDER), *modules],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[listening.fileno()],
                    env=QUIET | LOCAL | os.environ | ONE_THREAD,
                )
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self.start = [sys.executable, "-I", "-S", str(Path(__file__).with_name("worker_start.py")), address]
        """The prefix that makes Ray's command for a worker ask for a fork."""

    def end(self) -> None:
        """Let the server end. It waits a moment for its workers to end by themselves, and then kills them."""
        self._process.communicate()  # closes its input
        shutil.rmtree(self._folder, ignore_errors=True)

    def kill(self) -> None:
        """End it at once, while it has no workers."""
        self._process.kill()
        self.end()


_begun: list[ForkServer] = []
"""A server that was begun before Ray, until :func:`fork_server` takes it."""


@contextlib.contextmanager
def begun(modules: Sequence[str]) -> Iterator[None]:
    """Begin a fork server at once: it imports while configuration and data are read and Ray starts.

    The first :func:`fork_server` in this context takes it; one that is not taken is killed at the end.
    """
    if sys.platform == "linux":
        _begun.append(ForkServer(modules))
    try:
        yield
    finally:
        while _begun:
            _begun.pop().kill()


@contextlib.contextmanager
def fork_server(modules: Sequence[str]) -> Iterator[list[str]]:
    """Yields the prefix that makes Ray's command for a worker ask for a fork; empty on systems other than Linux.

    The server has imported ``modules``, and ends with the context. One that was :func:`begun` is taken, whatever it
    imports.
    """
    if sys.platform != "linux":
        yield []
        return
    server = _begun.pop() if _begun else ForkServer(modules)
    try:
        yield server.start
    finally:
        server.end()
