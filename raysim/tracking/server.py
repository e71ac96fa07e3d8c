"""MLflow's own server on this machine, with a store of raysim's, and the page of it that shows runs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

from raysim.core.errors import ConfigError, ResourceError

START_SECONDS = 120.0
"""How long the server may take to answer."""

SETTINGS = {
    # Neither MLflow nor the processes that it starts look for modules in the working directory.
    "PYTHONSAFEPATH": "1",
    # Its queues of jobs, for models that judge texts, would be four more processes.
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


@dataclass(frozen=True)
class Server:
    """A server that answers at ``address``."""

    address: str
    process: subprocess.Popen[bytes]

    def runs(self, experiment_id: str) -> str:
        """The page of an experiment's runs, as MLflow shows those of machine learning."""
        return f"{self.address}/#/experiments/{experiment_id}/runs?workflowType=machine_learning"


@contextlib.contextmanager
def serving(uri: str, port: int) -> Iterator[Server]:
    """A server of one process on the loopback interface, once it answers; it ends with the context.

    Raises ``ConfigError`` where it ends at once (another program may hold the port), and ``ResourceError`` where it
    does not answer.
    """
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri, "--host", "127.0.0.1"]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [*command, "--port", str(port), "--workers", "1"],
            env=os.environ | SETTINGS,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # MLflow leaves the process that serves behind where it alone is ended
        )
        try:
            server = Server(f"http://127.0.0.1:{port}", process)
            if not _answers(server, time.monotonic() + START_SECONDS):
                said.seek(0)
                last = (said.read().decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
                if process.poll() is None:
                    raise ResourceError(f"MLflow does not answer within {START_SECONDS:g} s ({last}); try again")
                raise ConfigError(f"--port: MLflow ended at once on port {port} ({last}); name a port that is free")
            yield server
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a server and the processes that it has started, which are its group."""
    for ending in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, ending)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)


def _answers(server: Server, until: float) -> bool:
    while server.process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(f"{server.address}/health", timeout=2).close()
            return server.process.poll() is None
        time.sleep(0.1)
    return False


def latest_experiment(uri: str) -> str | None:
    """The id of the experiment that has the newest run of a store; None where it has no run."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(experiments, order_by=["attributes.start_time DESC"], max_results=1)
    return str(runs[0].info.experiment_id) if runs else None
