"""What reaches MLflow from a run's configuration."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from mlflow.tracking import MlflowClient

from raysim.config.reading import resolve
from raysim.config.schema import TrackingSection
from raysim.tracking import recording
from raysim.tracking.client import Tracker, parameter_name
from raysim.tracking.recording import joined
from tests.conftest import empty_store


def test_names_of_hospitals_that_mlflow_refuses_are_recorded_apart(tmp_path: Path) -> None:
    """With characters that it does not take, at any depth, and again when the run goes on."""
    store = f"sqlite:///{empty_store(tmp_path)}/mlflow.db"
    tracker = Tracker(store, "raysim")
    names = ["St. Mary's", "St. Mary(s", "St. Mary\u2019s", "Ward [1/2]", "1/10", "a//b", "Z\u00fcrich: 1", "x" * 300]
    params = {
        "system": {"hospitals": {name: {"uplink": k} for k, name in enumerate(names)}},
        "resources": {"per_hospital": {name: {"cpus": k} for k, name in enumerate(names)}},
        "system.hospitals.St. Mary's.latency": 3,
    }
    run = tracker.start("r", params, {"raysim.run": "1"})
    assert tracker.go_on("r", params, {"raysim.run": "1"}) == run
    recorded = MlflowClient(tracking_uri=store).get_run(run).data.params
    assert len(recorded) == 2 * len(names) + 1
    for k, name in enumerate(names):
        assert recorded[parameter_name(f"system.hospitals.{name}.uplink")] == str(k)
    assert recorded["system.hospitals.1/10.uplink"] == "4"
    assert recorded["system.hospitals.Z\u00fcrich: 1.uplink"] == "6"


def test_products_in_bfloat16_are_said_where_a_run_is_recorded(tmp_path: Path) -> None:
    """In the parameters and in ``config.yaml``, whose tree is the same."""
    frozen = resolve({"model": {"name": "fashion_cnn", "autocast": "bfloat16"}}).of_run(3).frozen_run()
    assert frozen["model"]["autocast"] == "bfloat16"
    tracker = Tracker(store := f"sqlite:///{empty_store(tmp_path) / 'mlflow.db'}", "e")
    run = tracker.start("r", frozen, {"raysim.run": "1"})
    assert MlflowClient(tracking_uri=store).get_run(run).data.params["model.autocast"] == "bfloat16"


@pytest.mark.parametrize("key", ["training.rounds", "system.hospitals.St. Mary 1/2.uplink", "x" * 250])
def test_a_name_that_mlflow_takes_stays(key: str) -> None:
    assert parameter_name(key) == key


def test_each_file_that_arrives_shows_that_a_store_answers(tmp_path: Path) -> None:
    """Else one that is slow would be taken for one that is away."""
    files = {}
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
        files[name] = tmp_path / name
    answers: list[None] = []
    tracker = Tracker(f"sqlite:///{empty_store(tmp_path)}/mlflow.db", "raysim", lambda: answers.append(None))
    run = tracker.start("r", {}, {})
    before = len(answers)
    tracker.finish(run, {}, files, "FINISHED")
    assert len(answers) - before >= len(files) + 1


def test_threads_are_waited_for_while_calls_come_back() -> None:
    calls, over = [0], threading.Event()

    def slow() -> None:
        for _ in range(8):
            time.sleep(0.02)
            calls[0] += 1

    threads = [threading.Thread(target=slow, daemon=True), threading.Thread(target=over.wait, daemon=True)]
    for each in threads:
        each.start()
    assert joined(threads[:1], lambda: calls[0], 600.0)
    assert calls == [8]
    assert not joined(threads, lambda: calls[0], 0.2), "the other one hangs"
    over.set()
    assert joined(threads, lambda: calls[0], 600.0)


ASKED = """
import sys, threading, time
from raysim.config.schema import TrackingSection
from raysim.tracking.recording import Recorder

with Recorder(TrackingSection(uri=f"sqlite:///{sys.argv[1]}")) as recorder:
    with recorder.run("r", {}, {"raysim.run": "1"}) as record:
        pass
    for _ in range(6000):  # two threads that import MLflow at once can each meet half of it
        if record.over:
            break
        time.sleep(0.1)
    from mlflow.telemetry.client import get_telemetry_client
    from mlflow.telemetry.utils import is_telemetry_disabled

    print(is_telemetry_disabled(), get_telemetry_client(), any("Telemetry" in t.name for t in threading.enumerate()))
"""


@pytest.mark.surroundings
def test_mlflow_tells_its_makers_nothing(tmp_path: Path) -> None:
    signs = ("CI", "PYTEST", "GITHUB", "BUILD", "JENKINS", "TELEMETRY", "DO_NOT_TRACK")
    environment = {name: value for name, value in os.environ.items() if not any(sign in name for sign in signs)}
    command = [sys.executable, "-c", ASKED, str(empty_store(tmp_path) / "mlflow.db")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.stdout.strip() == "True None False", done.stderr


@pytest.mark.parametrize(("times", "sent"), [(recording.LOCKED, True), (recording.LOCKED + 1, False)])
def test_a_file_that_is_locked_for_a_moment_is_tried_again(
    times: int, sent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of a command, too: another one may be writing its own runs."""
    real, store = Tracker.complete, f"sqlite:///{empty_store(tmp_path) / 'mlflow.db'}"
    recorder, failures = recording.Recorder(TrackingSection(uri=store)), ["database is locked"] * times

    def locked(*arguments: Any) -> None:
        assert recorder._closing.wait(600)
        if failures:
            raise sqlite3.OperationalError(failures.pop())
        real(*arguments)

    monkeypatch.setattr(recording, "WAITS", (0.01,))
    monkeypatch.setattr(Tracker, "complete", locked)
    with recorder, recorder.run("r", {}, {"raysim.run": "1"}):
        pass
    assert [each.name for each in recorder.pending] == ([] if sent else ["r"])
    (run,) = MlflowClient(tracking_uri=store).search_runs([experiment_of(store)])
    assert run.info.status == ("FINISHED" if sent else "RUNNING")


def experiment_of(store: str) -> str:
    (experiment,) = (each for each in MlflowClient(tracking_uri=store).search_experiments() if each.name == "raysim")
    return str(experiment.experiment_id)
