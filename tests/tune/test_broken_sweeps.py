"""Sweeps on a real Ray in which something fails: a trial, a disk, the driver, Ray itself."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import time

import pandas as pd
import psutil
import pytest

from raysim.core import host
from raysim.tune import sweep as sweeps
from tests.commands import said, started
from tests.conftest import shared_ray, standing_ray
from tests.fuzz.command import answer, limited
from tests.tune.sweeps import PLAIN, TWO, begin, go_on

pytestmark = [*shared_ray("sweeps"), pytest.mark.faults]

FAILING = {"training.learning_rate": {"grid": [1e30, 0.1]}, "strategy.mu": {"uniform": [0, 1]}}


def test_failed_trials_are_recorded_with_their_error_and_the_sweep_goes_on(sweep_file, tmp_path):
    out = tmp_path / "out"
    path = sweep_file(**PLAIN, sweep__space=FAILING, sweep__trials=2, sweep__retries=1, sweep__concurrent=1)
    code, said = begin(path, out)
    assert code == 3
    assert "1 of 2 trials failed" in said
    table = pd.read_csv(out / "trials.csv").set_index("trial")
    assert table["status"].tolist() == ["failed", "completed"]
    failed = table[table["status"] == "failed"]
    assert failed["error"].str.contains("training.learning_rate: 1e\\+30 made hospital .* diverge in round 1").all()
    assert (failed["attempts"] == 2).all()
    assert json.loads((out / "summary.json").read_text())["failed"] == 1
    assert go_on(out, failed=True)[0] == 3  # tried again, failed again
    lines = (out / "journal.jsonl").read_text().splitlines()
    assert [json.loads(line)["number"] for line in lines[1:]] == [1, 2, 1]


STOPS = """
import os, pathlib, signal
from dataclasses import dataclass
from raysim.strategies.one_model.fedprox import FedProx


@dataclass(frozen=True, kw_only=True)
class Stops(FedProx):
    once: str

    def aggregate(self, view, state, update):
        if view.round == 2 and pathlib.Path(self.once).exists():
            pathlib.Path(self.once).unlink()
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().aggregate(view, state, update)
"""
"""A strategy whose process stands still in its second round while there is a file, which it takes away."""


def test_a_trial_that_stands_still_is_ended_and_tried_again(sweep_file, tmp_path, monkeypatch):
    (once := tmp_path / "once").touch()
    path = sweep_file(
        strategy={"class": "stopping_trials.Stops", "once": str(once)},
        resources__hospitals_per_actor=12,
        sweep__space={"strategy.mu": {"uniform": [0, 1]}},
        sweep__objectives=TWO,
        sweep__trials=2,
        sweep__retries=5,
    )
    path.with_name("stopping_trials.py").write_text(STOPS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweeps, "longest_silence", lambda resources: 6.0)
    said_by_ray: list[logging.LogRecord] = []
    (handler := logging.Handler()).emit = said_by_ray.append
    monkeypatch.setattr(logging.getLogger("ray.tune"), "handlers", [handler])
    with limited(300):
        code, said = begin(path, tmp_path / "out")
    assert code == 0, said
    assert not once.exists()
    assert said_by_ray == []
    assert pd.read_csv(tmp_path / "out" / "trials.csv")["status"].tolist() == ["completed"] * 2


FILLS = """
import os, pathlib
from dataclasses import dataclass
from raysim.strategies.one_model.fedprox import FedProx


@dataclass(frozen=True, kw_only=True)
class Fills(FedProx):
    journal: str

    def aggregate(self, view, state, update):
        here = pathlib.Path(self.journal)
        if view.round == 2 and not here.with_suffix(".kept").exists():
            here.rename(here.with_suffix(".kept"))
            here.symlink_to("/dev/full")
        return super().aggregate(view, state, update)
"""
"""A strategy that puts a full device in the place of the sweep's journal."""


def test_a_full_disk_ends_a_sweep_in_one_line(sweep_file, tmp_path, monkeypatch):
    journal = tmp_path / "out" / "journal.jsonl"
    path = sweep_file(
        strategy={"class": "filling_trials.Fills", "journal": str(journal)},
        resources={"runs_at_once": 1, "hospitals_per_actor": 12},
        sweep__space={"strategy.mu": {"uniform": [0, 1]}},
        sweep__objectives=TWO,
        sweep__trials=2,
        sweep__concurrent=1,
    )
    path.with_name("filling_trials.py").write_text(FILLS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(host, "take", lambda: None)
    ended = answer(["sweep", str(path), "--out", "out"], tmp_path, seconds=300)
    assert ended.code == 2, ended.err
    *_, line = ended.err.splitlines()
    assert line.startswith("raysim: ")
    assert "No space left on device" in line
    assert "Traceback" not in ended.err
    journal.with_suffix(".kept").replace(journal)
    (tmp_path / "out" / "journal.kept").touch()
    assert go_on(tmp_path / "out")[0] == 0


HELD = """
import itertools, pathlib, time
from dataclasses import dataclass
from raysim.strategies.one_model.fedprox import FedProx

AGGREGATED = itertools.count()


@dataclass(frozen=True)
class Held(FedProx):
    hold: str = ""

    def aggregate(self, view, state, update):
        late = next(AGGREGATED) >= 3
        while late and pathlib.Path(self.hold).exists():
            time.sleep(0.02)
        return super().aggregate(view, state, update)
"""
"""A strategy that waits after 3 rounds in a process, which are a trial, while the file ``hold`` is there."""


@contextlib.contextmanager
def in_mid_sweep(sweep_file, out, environment):
    """The process of a sweep of three trials, of which one is in the journal and some will not end before it does."""
    hold = out.with_name("hold")
    hold.touch()
    path = sweep_file(
        strategy={"class": "held_trials.Held", "hold": str(hold)},
        resources={"runs_at_once": 1, "hospitals_per_actor": 12},
        sweep__space={"strategy.mu": {"uniform": [0, 1]}},
        sweep__objectives=TWO,
        sweep__trials=3,
        sweep__concurrent=1,
    )
    path.with_name("held_trials.py").write_text(HELD)
    process = started(["sweep", str(path), "--out", str(out)], path.parent, environment)
    journal, limit = out / "journal.jsonl", time.monotonic() + 600
    while not (journal.exists() and journal.read_bytes().count(b"\n") > 1):
        assert time.monotonic() < limit
        assert not process.ended(), process.wait()
        time.sleep(0.02)
    yield process
    hold.unlink()
    assert journal.read_bytes().count(b"\n") < 4


def test_a_killed_driver_loses_at_most_the_trials_that_were_running(sweep_file, tmp_path, monkeypatch):
    """On a Ray that stands, as that of a cluster, which ends what the driver had at work."""
    out, journal = tmp_path / "out", tmp_path / "out" / "journal.jsonl"
    with in_mid_sweep(sweep_file, out, standing_ray()) as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    done = journal.read_bytes()
    whole = done[: done.rfind(b"\n") + 1]
    monkeypatch.chdir(tmp_path)  # code is taken from where the command is typed
    assert go_on(out)[0] == 0
    assert journal.read_bytes().startswith(whole)
    numbers = [json.loads(line)["number"] for line in journal.read_text().splitlines()[1:]]
    assert sorted(numbers) == [1, 2, 3]


def test_a_sweep_that_is_terminated_says_how_it_goes_on(sweep_file, tmp_path):
    with in_mid_sweep(sweep_file, tmp_path / "out", {}) as process:
        os.kill(process.pid, signal.SIGTERM)
        done = process.wait()
    assert done.code == 143, done.err
    assert "SIGTERM received" not in done.err, "Ray's own trace"
    assert f"continue with 'raysim resume {tmp_path / 'out'}'" in done.err


def test_a_ray_that_dies_under_a_sweep_is_an_error_in_one_line(sweep_file, tmp_path):
    """Of its parts the raylet; the GCS server ends under a run in ``tests/cluster/test_driver_faults.py``."""
    with in_mid_sweep(sweep_file, tmp_path / "out", {}) as process:
        family = psutil.Process(process.pid).children(recursive=True)
        parts = [each for each in family if each.name() == "raylet"]
        max(parts, key=lambda each: each.create_time()).kill()  # a Ray that did not come up in time leaves some
        done = process.wait()
    assert done.code == 2, done.err
    *before, error = said(done.err)
    assert done.err.endswith(f"{error}\n"), "it is the last line"
    may_come = ("raysim: Ray did not start in time", "raysim: waiting for another command", "warning: validation rows")
    assert all(line.startswith(may_come) for line in before), before
    assert error == (
        "raysim: resources: Ray itself has failed (raylet has ended); finished results are on disk; "
        "continue with 'raysim resume FOLDER'"
    )
