"""What all processes of a test session share: a folder, and a process of which they and their commands are forks.

The first process that asks makes them, and they are gone with it. Where several processes run tests, that is the one
that started the others, which find the folder in their environment.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import pickle
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

VARIABLE = "RAYSIM_TESTS_SHARED"
"""Names the folder."""

ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
"""Of a process that is forked, as threads do not survive a fork."""

OF_RAY = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_enable_pipe_based_agent_to_parent_health_check": "1",
    "AUTOSCALER_METRIC_PORT": "65536",
    "DASHBOARD_METRIC_PORT": "65536",
}
"""Of processes that start a Ray, as raysim has it. With the second an agent knows by a pipe that its node has ended,
which is no parent of a fork."""

EARLY, LATE = "early", "late"
"""Where in it :mod:`tests.forking` listens."""

WITHOUT_RAY: tuple[str, ...] = (
    "aiohttp",
    "alembic.config",
    "alembic.command",
    "email.policy",
    "encodings.cp437",
    "encodings.utf_8_sig",
    "importlib_metadata",
    "mlflow.store.db.utils",
    "mlflow.store.tracking.sqlalchemy_workspace_store",
    "mlflow.tracking",
    "optuna.importance",
    "pandas",
    "pyarrow.csv",
    "pyarrow.feather",
    "pyarrow.json",
    "pydantic.v1",
    "raysim.api.running",
    "raysim.cluster.coordinator",
    "raysim.experiment.comparison",
    "raysim.experiment.run_actors",
    "safetensors.numpy",
    "scipy.optimize",
    "scipy.stats",
    "sklearn.cluster",
    "sklearn.compose",
    "sklearn.ensemble",
    "sqlalchemy.dialects.sqlite",
    "tests.rays",
    "torch.export._trace",
    "typer.main",
)
"""What is imported before the first fork, for workers of a Ray that must import it themselves. It starts nothing."""

PRELOADED: tuple[str, ...] = (
    "tests.ray_of_forks",
    "ray.autoscaler._private.monitor",
    "ray.dag",
    "ray.dashboard.agent",
    "ray.dashboard.dashboard",
    "ray.experimental",
    "ray.tune",
    "tests.all_of_raysim",
    "tests.conftest",
)
"""What is imported besides for commands and all else."""


def folder() -> Path:
    """The folder."""
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = _begin()
    return Path(os.environ[VARIABLE])


@contextlib.contextmanager
def locked(name: str) -> Iterator[Path]:
    """The file ``name`` in the folder, which no other process makes meanwhile."""
    path = folder() / name
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield path


def asked(
    function: Callable[..., None], arguments: Sequence[object], streams: Sequence[int] = (), server: str = LATE
) -> socket.SocketIO:
    """The lines with which :mod:`tests.forking` answers, none read ahead.

    ``streams`` are numbers of open files, which the process that calls the ``function`` has under the same numbers.
    """
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(folder() / server))
        # By parts: with the path come the modules that the call names.
        numbers = " ".join(map(str, streams)).encode()
        request = numbers + b"\n" + pickle.dumps((sys.path, pickle.dumps((function, arguments))))
        sent = socket.send_fds(line, [request], streams) if streams else 0
        line.sendall(request[sent:])
        line.shutdown(socket.SHUT_WR)
        return line.makefile("rb", buffering=0)


def _begin() -> str:
    import subprocess  # not above: programs of a Ray that become forks have no use for it
    import tempfile

    made = tempfile.mkdtemp(prefix="raysim-tests-")
    with socket.socket(socket.AF_UNIX) as early, socket.socket(socket.AF_UNIX) as late:
        for listening, name in ((early, EARLY), (late, LATE)):
            listening.bind(os.path.join(made, name))
            listening.listen()
        program = [sys.executable, "-P", str(Path(__file__).with_name("forking.py"))]
        server = subprocess.Popen(
            [*program, str(early.fileno()), str(late.fileno()), *WITHOUT_RAY, "--", *PRELOADED],
            stdin=subprocess.PIPE,
            pass_fds=[early.fileno(), late.fileno()],
            env=os.environ | ONE_THREAD | OF_RAY | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            cwd=Path(__file__).parents[1],  # that of the test which asks first goes with it
        )
    atexit.register(server.communicate)  # closes its input, which ends it
    return made
