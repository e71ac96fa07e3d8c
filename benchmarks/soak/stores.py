"""A tracking store that goes away and comes back: an MLflow server that stays up, behind a port that does not."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.soak import proxy
from benchmarks.soak.drivers import wait_for


class Server:
    """An MLflow server that stays up, behind a port that is killed and comes back."""

    _behind: tuple[subprocess.Popen[bytes], int, str] | None = None

    def __init__(self, folder: Path) -> None:
        if Server._behind is None:
            Server._behind = _mlflow(folder)
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.uri = f"http://127.0.0.1:{self._port}"

    @property
    def up(self) -> bool:
        """Whether the port is open."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Open the port, if it is not."""
        if self.up:
            return
        assert Server._behind is not None
        target = str(Server._behind[1])
        self._process = subprocess.Popen([sys.executable, proxy.__file__, str(self._port), target])
        _answers(self._port, self._process)

    def kill(self) -> None:
        """Nothing answers any more."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def states(self, experiment: str) -> list[str]:
        """The states of an experiment's runs."""
        from mlflow.tracking import MlflowClient

        assert Server._behind is not None
        client = MlflowClient(f"http://127.0.0.1:{Server._behind[1]}")
        entry = client.get_experiment_by_name(experiment)
        return [] if entry is None else [run.info.status for run in client.search_runs([entry.experiment_id])]

    @classmethod
    def stop(cls) -> None:
        """End the server itself."""
        if cls._behind is not None:
            os.killpg(cls._behind[0].pid, signal.SIGKILL)
            cls._behind[0].wait()
            cls._behind = None


def _mlflow(folder: Path) -> tuple[subprocess.Popen[bytes], int, str]:
    store, port = folder / "mlflow", _free_port()
    store.mkdir()
    options = ["--backend-store-uri", f"sqlite:///{store}/mlflow.db", "--artifacts-destination", str(store / "files")]
    process = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", *options, "--port", str(port), "--workers", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=store,
    )
    _answers(port, process)
    return process, port, str(store)


def _answers(port: int, process: subprocess.Popen[bytes]) -> None:
    def connected() -> bool:
        if process.poll() is not None:
            raise RuntimeError("a server did not come up")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return False
        return True

    wait_for(connected, 120, "a server did not answer")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def servers() -> Iterator[None]:
    """What was started here ends afterwards."""
    try:
        yield
    finally:
        Server.stop()
