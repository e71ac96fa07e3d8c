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
"""What Ray imports in a worker once it is connected, and what hospitals and coordinators import; what few need, such
as torch, each imports for itself."""

OF_RUNS = (*MODULES, "raysim.experiment.run_actors", "raysim.experiment.comparison")
"""The same of workers that play whole runs."""

OF_TRIALS = (
    *MODULES,
    "raysim.tune.running.trainable",
    "--",
    "scipy.stats",
    "sklearn.cluster",
    "sklearn.ensemble",
    "raysim.tune.plots",
    "raysim.tune.page.importance",
)
"""The same of workers that play trials of a sweep, and draw it at its end. What stands behind ``--`` is needed later or
only sometimes: it is imported while nobody asks for a worker, before trials begin and beside them."""

WAITING = 1024
"""Workers that may ask before one is answered."""

ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
"""Threads do not live on in a fork; where an actor may have more, it says so when it is there."""


class ForkServer:
    """A process of which workers are forks. It imports ``modules`` at once, in the environment of Ray's processes."""

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
        """The command that, put before Ray's for a worker, makes a fork of it."""

    def end(self) -> None:
        """End it and its workers, once these have ended or the time for that is over."""
        self._process.communicate()  # closes its input
        shutil.rmtree(self._folder, ignore_errors=True)

    def kill(self) -> None:
        """End it at once, while it has no workers."""
        self._process.kill()
        self.end()


_begun: list[ForkServer] = []
"""One that was begun before Ray, until it is taken."""


@contextlib.contextmanager
def begun(modules: Sequence[str]) -> Iterator[None]:
    """A fork server begins at once, while configuration and data are read: it imports as long as they are read and
    Ray starts. The first :func:`fork_server` meanwhile takes it; where nobody does, it is ended.
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
    """The command that, put before Ray's for a worker, makes a fork of a server that has imported ``modules``; empty
    where the system has none.

    The server is there with the context. One that was :func:`begun` before is taken, whatever it imports.
    """
    if sys.platform != "linux":
        yield []
        return
    server = _begun.pop() if _begun else ForkServer(modules)
    try:
        yield server.start
    finally:
        server.end()
