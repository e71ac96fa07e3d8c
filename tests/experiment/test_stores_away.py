"""A tracking store that goes away under a run: the run ends with its files, and resuming it sends what is kept."""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow.tracking import MlflowClient
from rich.console import Console

from raysim.core.errors import ConfigError, ResourceError
from raysim.engine.job import Round
from raysim.report.terminal.progress import RunProgress
from raysim.tracking import recording
from raysim.tracking.client import Tracker
from tests.commands import Running
from tests.conftest import empty_store
from tests.storage.test_resume import SMALL, go_on, here, start
from tests.waiting import until

pytestmark = pytest.mark.faults

__all__ = ["here"]

ROUNDS = SMALL["training"]["rounds"]


def alone(uri: str) -> dict[str, Any]:
    """A run of hospitals that train alone, recorded there."""
    return SMALL | {"strategy": "local", "selection": "all", "tracking": {"uri": uri}}


def at_round(monkeypatch: pytest.MonkeyPatch, round: int, event: Callable[[], None]) -> None:
    """``event`` happens once, when that round of the first run is reported."""
    show, happened = RunProgress.round, []

    def and_then(self: RunProgress, row: Round) -> None:
        show(self, row)
        if row.round == round and not happened:
            happened.append(True)
            event()

    monkeypatch.setattr(RunProgress, "round", and_then)


class Server:
    """A real MLflow server on a port of its own, in processes of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = empty_store(folder)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        options = ["--backend-store-uri", f"sqlite:///{self._folder}/mlflow.db", "--port", str(self.port)]
        options += ["--artifacts-destination", str(self._folder / "artifacts"), "--workers", "1"]
        # Its queues of jobs would be five more processes.
        self._process = Running(serve, options, self._folder, {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"})

        def listens() -> bool:
            assert not self._process.ended(), self._process.wait()
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return True
            return False

        until(listens)

    def kill(self) -> None:
        """All of it, at once."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def serve(*options: str) -> None:
    """``mlflow server``, which here becomes the program that it would start: that would import all again."""
    warnings.simplefilter("ignore")  # it is not a program of raysim's
    from mlflow import server
    from mlflow.cli import cli

    def become(command: list[str], extra_env: dict[str, str], **_: Any) -> None:
        os.environ.update(extra_env)
        python, option, module, *sys.argv[1:] = command
        assert (python, option) == (sys.executable, "-m")
        runpy.run_module(module, run_name="__main__", alter_sys=True)

    server._exec_cmd = become
    cli(["server", *options])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.kill()


class Gate:
    """A port that hands connections on to a server, files apart: these wait until ``free`` is set, and are refused."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.arrived, self.free = threading.Event(), threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.uri = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                ours = self._listener.accept()[0]
            except OSError:
                return
            theirs = socket.create_connection(("127.0.0.1", self._target))
            for source, sink in ((ours, theirs), (theirs, ours)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while content := source.recv(65536):
                if content.startswith(b"PUT "):
                    self.arrived.set()
                    self.free.wait()
                    break
                sink.sendall(content)
        except OSError:
            pass
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def said_by_run(tree: dict[str, Any], out: str, monkeypatch: pytest.MonkeyPatch, **how: bool) -> str:
    """What a run or comparison prints."""
    text = io.StringIO()
    with monkeypatch.context() as patch:
        patch.setattr("tests.storage.test_resume.Console", lambda quiet: Console(file=text, width=300))
        start(tree, out, **how)
    return text.getvalue()


def recorded(uri: str, experiment_name: str = "raysim") -> list[Any]:
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(experiment_name)
    return list(client.search_runs([experiment.experiment_id])) if experiment is not None else []


def whole(uri: str) -> None:
    """Every run is finished, with every round once."""
    client = MlflowClient(uri)
    for run in recorded(uri):
        assert run.info.status == "FINISHED"
        if "mlflow.parentRunId" in run.data.tags or len(recorded(uri)) == 1:
            for name in run.data.metrics:
                if name.endswith("seconds") or name.endswith(".auroc"):
                    steps = [point.step for point in client.get_metric_history(run.info.run_id, name)]
                    assert len(steps) == len(set(steps))
            steps = [point.step for point in client.get_metric_history(run.info.run_id, "traffic/cohort_size")]
            assert sorted(steps) == list(range(1, ROUNDS + 1))


def test_a_server_that_is_killed_in_mid_run(server: Server, here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(recording, "FLUSH_SECONDS", 0.0)
    seen = []

    def has_a_round() -> bool:
        seen[:] = [run for run in recorded(server.uri) if "traffic/cohort_size" in run.data.metrics]
        return bool(seen)

    def killed() -> None:
        until(has_a_round)
        server.kill()

    with monkeypatch.context() as patch:
        at_round(patch, 3, killed)
        said = said_by_run(alone(server.uri), "run", patch)
    assert len(seen) == 1
    assert (here / "run" / "models.safetensors").exists()
    assert json.loads((here / "run" / "resume.json").read_text())["finished"]
    assert f"warning: MLflow ({server.uri}) did not accept 1 run: " in said
    assert "they are stored in the folder, and 'raysim resume run' sends them" in said
    with pytest.raises(
        ResourceError, match=r"does not accept the records in .*unsent.json \(ConfigError: tracking.uri"
    ):
        go_on("run")
    server.start()
    assert f"finished, sent 1 run to MLflow ({server.uri})" in go_on("run")
    whole(server.uri)
    (run,) = recorded(server.uri)
    assert run.info.run_id == seen[0].info.run_id
    pending = {artifact.path for artifact in MlflowClient(server.uri).list_artifacts(run.info.run_id)}
    assert {"models.safetensors", "manifest.json"} <= pending
    assert "finished, nothing to resume" in go_on("run")


def test_a_server_that_takes_connections_and_never_answers(here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        said = said_by_run(alone(uri), "run", monkeypatch)
    assert f"warning: MLflow ({uri}) did not accept 1 run: " in said
    assert (here / "run" / "report.html").exists()


def test_a_call_that_never_comes_back_is_left_behind(here: Path, monkeypatch: pytest.MonkeyPatch):
    """Whatever MLflow does inside of it: its thread ends with the process."""
    monkeypatch.setattr(recording, "CLOSING_SECONDS", 0.5)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "600")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        said = said_by_run(alone(uri), "run", monkeypatch)
    assert (
        f"warning: MLflow ({uri}) did not accept 1 run: it did not answer within 0.5 s; they are stored in the folder"
    ) in said
    # What is kept names no folder but its own: else someone else's could have files of ours sent to a store of theirs.
    (here / "other").mkdir()
    pending = here / "run" / "unsent.json"
    tree = json.loads(pending.read_text())
    tree["runs"][0]["files"] = "../other"
    pending.write_text(json.dumps(tree))
    with pytest.raises(ConfigError, match=r"unsent.json: cannot be read \(ValueError\('\.\./other is not inside the"):
        go_on("run")


def unwritable(here: Path) -> None:
    """Nothing can be written where the store is, not even by root. It is in use: MLflow tries for long to open one."""
    until(lambda: bool(recorded(f"sqlite:///{here / 'mlflow.db'}")))
    (here / "mlflow.db").rename(here / "aside.db")
    (here / "mlflow.db").mkdir()


def writable(here: Path) -> None:
    (here / "mlflow.db").rmdir()
    (here / "aside.db").rename(here / "mlflow.db")


def test_what_comes_back_after_its_command_sends_nothing(here: Path, monkeypatch: pytest.MonkeyPatch):
    """A store that opens when the run has ended, and has been sent by another command of the same process."""
    uri = f"sqlite:///{empty_store(here) / 'mlflow.db'}"
    opens = threading.Event()

    class Late(Tracker):
        def __init__(self, *arguments: Any) -> None:
            opens.wait()
            super().__init__(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(recording, "CLOSING_SECONDS", 0.5)
        patch.setattr(recording, "Tracker", Late)
        said = said_by_run(alone(uri), "run", patch)
    assert "did not accept 1 run: it did not answer within 0.5 s; they are stored in the folder" in said
    (late,) = [thread for thread in threading.enumerate() if thread.name == "mlflow"]
    assert "finished, sent 1 run to MLflow" in go_on("run")
    opens.set()
    late.join()
    assert len(recorded(uri)) == 1
    whole(uri)


def test_a_file_that_cannot_be_written_any_more(here: Path, monkeypatch: pytest.MonkeyPatch):
    empty_store(here)
    uri = f"sqlite:///{here / 'mlflow.db'}"
    tree: dict[str, Any] = SMALL | {"seeds": [1], "tracking": {"uri": uri}, "strategies": ["fedavg", "local"]}
    with monkeypatch.context() as patch:
        at_round(patch, 3, lambda: unwritable(here))
        said = said_by_run(tree, "out", patch, compare=True)
    assert f"warning: MLflow ({uri}) did not accept 3 runs: " in said
    assert (here / "out" / "comparison.csv").exists()
    writable(here)
    assert "finished, sent 3 runs to MLflow" in go_on("out")
    runs = recorded(uri)
    (parent,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    assert len(runs) == 3
    nested = [run for run in runs if run is not parent]
    assert {run.data.tags["mlflow.parentRunId"] for run in nested} == {parent.info.run_id}
    whole(uri)
    assert not (here / "out" / "unsent.json").exists()


@pytest.mark.parametrize(
    ("error", "due"),
    [(ResourceError("no memory"), ["FAILED", "KILLED"]), (KeyboardInterrupt(), ["KILLED", "KILLED"])],
)
def test_no_run_stays_running_while_the_store_is_slow_to_take_files(
    error: BaseException, due: list[str], server: Server, here: Path, monkeypatch: pytest.MonkeyPatch
):
    """The files of a finished run are still on their way when the next one fails, and never arrive."""
    gate, jobs = Gate(server.port), []
    begins, show = RunProgress.begin, RunProgress.round

    def begun(self: RunProgress, *of: Any) -> None:
        jobs.append(of)
        begins(self, *of)

    def fails(self: RunProgress, row: Round) -> None:
        show(self, row)
        if len(jobs) == 2 and row.round == 3:
            assert gate.arrived.wait(600)
            raise error

    leaves = recording.Recorder.__exit__

    def leaving(self: recording.Recorder, kind: Any, raised: Any, at: Any) -> None:
        threading.Timer(0.5, gate.free.set).start()  # while it waits for the store
        leaves(self, kind, raised, at)

    tracking = {"uri": gate.uri, "experiment": f"slow, {type(error).__name__}"}
    tree = SMALL | {"tracking": tracking, "strategies": ["local", "fedavg"], "seeds": [1]}
    with monkeypatch.context() as patch:
        patch.setattr(RunProgress, "round", fails)
        patch.setattr(RunProgress, "begin", begun)
        patch.setattr(recording.Recorder, "__exit__", leaving)
        with pytest.raises(type(error)):
            start(tree, "out", compare=True)
    assert sorted(run.info.status for run in recorded(server.uri, tracking["experiment"])) == due
    gate.close()
