"""Faults of data, files, disks and stores."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.soak import proxy
from benchmarks.soak.cases import Case, Missed, Wrong
from benchmarks.soak.drivers import wait_for
from benchmarks.soak.subjects import open_checkpoints
from raysim.config import plugins
from raysim.config.schema import Config
from raysim.data.federation import Federation


def data_bad(case: Case) -> None:
    """a hospital's data turns to NaN"""
    tree = case.subject.configured(case.folder / "gate")
    federation = _federation(tree, case.stage.folder / "cache")
    path = federation.folder / "X.npy"
    good, rows = path.read_bytes(), np.load(path)
    hospital = int(case.stage.rng.choice(np.flatnonzero(federation.sizes("train"))))
    rows[federation.rows(hospital, "train")] = np.nan

    def overwrite(content: bytes) -> None:
        with path.open("r+b") as file:  # in place, as processes have mapped it
            file.write(content)

    try:
        with case.begun():
            overwrite(good[: len(good) - rows.nbytes] + rows.tobytes())
        ended = case.end()
    finally:
        overwrite(good)
    if ended.code == 0:  # what was left to train had its rows in memory
        raise Missed
    if case.subject.command == "sweep":
        case.expect(ended.code == 3, "exit code 3 was due", ended)
        case.resumed("--failed")
    else:
        named = f"'{federation.hospitals[hospital]}' diverge" in ended.err
        case.expect(ended.code == 2 and ended.clear and named, "no clear error", ended)
        case.resumed()
    case.same()


def _federation(tree: dict[str, object], cache: Path) -> Federation:
    config = Config.model_validate({"data": tree["data"]})
    before = os.environ.get("RAYSIM_CACHE")
    os.environ["RAYSIM_CACHE"] = str(cache)
    try:
        return plugins.build_federation(config.data, plugins.build_source(config.data), 1)
    finally:
        if before is None:
            del os.environ["RAYSIM_CACHE"]
        else:
            os.environ["RAYSIM_CACHE"] = before


def file_truncated(case: Case) -> None:
    """the driver is killed and its last checkpoint (or line of the journal) is truncated"""
    with case.begun() as driver:
        os.kill(driver.pid, signal.SIGKILL)
        time.sleep(0.1)
    case.end()
    rng = case.stage.rng
    if case.subject.command == "sweep":
        path = case.out / "journal.jsonl"
        *_, last = path.read_bytes().splitlines()
        os.truncate(path, path.stat().st_size - 1 - int(rng.integers(len(last) - 1)))
        case.resumed()
    else:
        path = open_checkpoints(case.out)[-1]
        os.truncate(path, int(rng.integers(path.stat().st_size)))
        ended = case.resumed()
        case.expect("is damaged" in ended.out, "it did not say what is damaged", ended)
    case.same()


def disk_full(case: Case) -> None:
    """the disk is full"""
    disk = case.stage.folder / f"disk-{case.stage.count}"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16M", "none", str(disk)], check=True)
    try:
        with (
            case.begun(disk / "out"),
            (disk / "filler").open("wb", buffering=0) as filler,
            contextlib.suppress(OSError),
        ):
            while True:
                filler.write(bytes(4096))
        ended = case.end()
        said = "No space left on device" in ended.err
        case.expect(ended.code == 2 and ended.clear and said, "no clear error", ended)
        (disk / "filler").unlink()
        case.resumed()
        case.same()
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path) -> None:
    """Write until nothing more fits."""
    with (disk / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(4096))


def server_killed(case: Case) -> None:
    """the tracking server is killed"""
    with Server(case.stage.folder) as server:
        case_name = f"case-{case.stage.count}"
        tracking = {"uri": server.uri, "experiment": case_name}
        with case.begun(tracking=tracking):
            server.kill()
        ended = case.end()
        case.expect(ended.code == 0 and "did not take" in ended.out, "it did not end well and say so", ended)
        case.same()
        server.start()
        case.resumed()
        if (case.out / "unsent.json").exists():
            raise Wrong("unsent.json is left")
        states = server.states(case_name)
        if set(states) != {"FINISHED"}:
            raise Wrong(f"runs in MLflow are {states}")


class Server:
    """An MLflow server that stays up, behind a port that is killed and comes back."""

    _behind: tuple[subprocess.Popen[bytes], int, str] | None = None

    def __init__(self, folder: Path) -> None:
        if Server._behind is None:
            Server._behind = _mlflow(folder)
        self._port = _free_port()
        self.uri = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Open the port."""
        assert Server._behind is not None
        target = str(Server._behind[1])
        self._process = subprocess.Popen([sys.executable, proxy.__file__, str(self._port), target])
        _answers(self._port, self._process)

    def kill(self) -> None:
        """Nothing answers any more."""
        self._process.kill()
        self._process.wait()

    def states(self, experiment: str) -> list[str]:
        """The states of an experiment's runs."""
        from mlflow.tracking import MlflowClient

        assert Server._behind is not None
        client = MlflowClient(f"http://127.0.0.1:{Server._behind[1]}")
        told = client.get_experiment_by_name(experiment)
        return [] if told is None else [run.info.status for run in client.search_runs([told.experiment_id])]

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
