"""Starts MLflow's own server on this machine, for a store of runs, and finds the page of the runs."""

from __future__ import annotations

import contextlib
import os
import shlex
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
from raysim.core.package import FOLDER
from raysim.tracking.charts import TABLE, VIEW_TAG, charts_page, runs_page, table_page

START_SECONDS = 120.0

SETTINGS = {
    # MLflow and its processes must not search modules in the working directory.
    "PYTHONSAFEPATH": "1",
    # MLflow's job queues, for models that judge texts, would need four more processes.
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


@dataclass(frozen=True)
class TrackingServer:
    """A running MLflow server at ``address``."""

    address: str
    process: subprocess.Popen[bytes]

    def page(self, within: str) -> str:
        """Return the full address of a page, given by its address within MLflow's site."""
        return f"{self.address}/{within}"


@contextlib.contextmanager
def serving(uri: str, port: int) -> Iterator[TrackingServer]:
    """Start an MLflow server on the loopback interface, and wait until it replies. The server ends with the context.

    Raises ``ConfigError`` if the server ends at once, and ``ResourceError`` if it does not reply in time.
    """
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--app-name",
        "raysim",
        # Otherwise the server would search modules in the working directory first.
        "--uvicorn-opts",
        f"--app-dir {shlex.quote(str(FOLDER.parent))}",
        "--backend-store-uri",
        uri,
        "--host",
        "127.0.0.1",
    ]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [*command, "--port", str(port), "--workers", "1"],
            env=os.environ | SETTINGS,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # ending only MLflow would leave its worker process running
        )
        try:
            server = TrackingServer(f"http://127.0.0.1:{port}", process)
            if not _answers(server, time.monotonic() + START_SECONDS):
                output.seek(0)
                last = (output.read().decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
                if process.poll() is None:
                    raise ResourceError(f"MLflow does not answer within {START_SECONDS:g} s ({last}); try again")
                raise ConfigError(f"--port: MLflow did not start on port {port} ({last}); name another port")
            yield server
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    for ending in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, ending)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)


def _answers(server: TrackingServer, until: float) -> bool:
    while server.process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(f"{server.address}/health", timeout=2).close()
            return server.process.poll() is None
        time.sleep(0.1)
    return False


def newest_runs(uri: str) -> str:
    """Return the address, within MLflow's site, of the experiment that has the newest run of a store; empty if there
    are no runs.
    """
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(experiments, order_by=["attributes.start_time DESC"], max_results=1)
    if not runs:
        return ""
    newest = client.get_experiment(runs[0].info.experiment_id)
    page = table_page if f"{VIEW_TAG}{TABLE}" in newest.tags else runs_page
    return page(newest.experiment_id)


def charts_of(uri: str, run_id: str) -> str:
    """Return the address, within MLflow's site, of a page with charts of the runs nested in the run ``run_id``.

    Raises ``ConfigError`` if the store has no charts of the run.
    """
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    try:
        experiment = client.get_experiment(client.get_run(run_id).info.experiment_id)
    except MlflowException:
        raise ConfigError(
            f"--uri: {uri} does not hold this sweep; pass the store in tracking.uri of the sweep's config"
        ) from None
    if f"{VIEW_TAG}{run_id}" not in experiment.tags:
        raise ConfigError(
            "the sweep has no charts in MLflow before it has ended; run raysim ui without its folder to see its trials"
        )
    return charts_page(experiment.experiment_id, run_id)
