"""Silence of trials: what counts as a sign of life, and when a process is ended. The clock is the test's own."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import ray

from raysim.tune.running.heartbeat import Heartbeats, Pulse


@pytest.fixture
def seen(tmp_path, monkeypatch):
    """Looks at one running trial: ``look(seconds)`` after so long; ``ended`` are the actors that were killed."""
    now, ended = [100.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(ray, "kill", ended.append)
    beats = Heartbeats(tmp_path, 30)
    trial = SimpleNamespace(trial_id="t1", status="RUNNING", temporary_state=SimpleNamespace(ray_actor="actor"))
    beats.on_trial_start(0, [trial], trial)

    def look(seconds: float) -> None:
        now[0] += seconds
        beats.on_step_end(0, [trial])

    return SimpleNamespace(look=look, ended=ended, beats=beats, trial=trial, pulse=Pulse(tmp_path, "t1"))


def test_a_trial_is_ended_after_so_many_seconds_without_a_sign(seen):
    for _ in range(6):
        seen.look(5)
    assert seen.ended == []
    assert seen.beats.reason("t1") is None
    seen.look(5)
    assert seen.ended == ["actor"]
    assert seen.beats.reason("t1") == "its process did not report for 30 s and was ended"
    seen.look(5)
    assert seen.ended == ["actor"], "once"


def test_every_sign_of_life_resets_the_timer(seen):
    for _ in range(40):
        seen.pulse.beat()
        seen.look(5)
    for _ in range(6):
        seen.look(5)
    assert seen.ended == []
    seen.look(5)
    assert seen.ended == ["actor"]


def test_time_in_which_the_driver_did_not_look_does_not_count(seen):
    seen.look(3600)
    seen.look(3600)
    seen.look(3600)
    assert seen.ended == []
    seen.look(3600)
    assert seen.ended == ["actor"]


def test_a_trial_that_waits_for_its_turn_is_not_listened_to(seen):
    seen.trial.status = "PAUSED"
    for _ in range(60):
        seen.look(5)
    assert seen.ended == []


def test_a_trial_that_begins_again_has_all_of_its_time(seen):
    for _ in range(7):
        seen.look(5)
    seen.beats.on_trial_start(0, [seen.trial], seen.trial)
    assert seen.beats.reason("t1") is None
    for _ in range(6):
        seen.look(5)
    assert seen.ended == ["actor"]
    seen.look(5)
    assert seen.ended == ["actor", "actor"]


def test_a_folder_that_is_gone_stops_no_trial(tmp_path):
    Pulse(tmp_path / "gone", "t1").beat()
