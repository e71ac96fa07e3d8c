"""Faults injected for real: processes killed and stopped, data gone bad, a driver that ends without a word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest
import ray
import yaml

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import RayPool
from raysim.config.schema import EvaluationSection, ResourcesSection
from raysim.core.errors import ResourceError, TrainingDiverged
from raysim.data.federation import Federation
from raysim.engine.job import Job, Outcome, Round, RunState
from raysim.engine.messages import Inquiry, ModelSpec, Work
from raysim.experiment.session import Session, open_session
from raysim.strategies.base import HospitalRows, Strategy
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.selections.sampling import All
from raysim.training.base import Optimizer
from tests.conftest import MakeFederation, play

SIZES = [12, 8, 21, 0, 14, 9]
ROUNDS = 60
TWO = ResourcesSection(hospitals_per_actor=3)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """A Ray that the tests of this module share."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="FATAL")
    yield
    ray.shutdown()


@dataclass(frozen=True)
class Slowed(Chip):
    """CHiP-FL whose server takes its time, so that a fault falls between its rounds and not after them."""

    def aggregate(self, view, state, update):
        time.sleep(0.02)
        return super().aggregate(view, state, update)


STRATEGY = Slowed(clusters=2)


def job(federation: Federation, strategy: Strategy, rounds: int = ROUNDS) -> Job:
    work = Work(
        str(federation.folder),
        ModelSpec("logistic_regression", None, {}, "default"),
        Optimizer("sgd", 0.1, 4),
        1,
        1,
        "float64",
    )
    return Job(work, strategy, All(), rounds, EvaluationSection())


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [6] * len(SIZES))


@pytest.fixture
def expected(federation: Federation) -> Outcome:
    return play(federation, Chip(clusters=2), rounds=ROUNDS)


def equal(rounds: list[Round], outcome: Any, expected: Outcome) -> None:
    """The result of an undisturbed run, and every round told once."""
    assert isinstance(outcome, Outcome)
    np.testing.assert_array_equal(outcome.bank, expected.bank)
    for hospital, theta in expected.kept.items():
        np.testing.assert_array_equal(outcome.kept[hospital], theta)
    for model, figures in expected.figures.items():
        np.testing.assert_array_equal(outcome.figures[model], figures)
    assert [row.round for row in rounds] == list(range(1, ROUNDS + 1))
    assert [row.metrics for row in outcome.rounds] == [row.metrics for row in expected.rounds]


def pid(actor: Any) -> int:
    return int(ray.get(actor.__ray_call__.remote(lambda _: os.getpid())))


def disturbed(
    session: Session, federation: Federation, fault: Any, every: int = 4
) -> tuple[list[Round], Any, list[str]]:
    """A run that meets ``fault()`` after its tenth round; its rounds, its outcome and what was said."""
    said: list[str] = []
    rounds, last = [], None
    for event in session.run(job(federation, STRATEGY), None, every, said.append):
        if isinstance(event, Round):
            rounds.append(event)
            if event.round == 10:
                fault()
        elif isinstance(event, Outcome):
            last = event
    return rounds, last, said


def test_a_hospital_actor_killed_in_a_round_repeats_it(federation: Federation, expected: Outcome):
    with open_session(federation.totals, TWO, in_process=False, verbose=False) as session:
        victim = pid(session.actors[1])  # type: ignore[attr-defined]
        rounds, outcome, said = disturbed(session, federation, lambda: os.kill(victim, signal.SIGKILL))
    equal(rounds, outcome, expected)
    assert said == []


@pytest.mark.parametrize("every", [4, 0])
def test_a_killed_coordinator_goes_on_and_it_is_said(federation: Federation, expected: Outcome, every):
    with open_session(federation.totals, TWO, in_process=False, verbose=False) as session:
        victim = pid(session.coordinator)  # type: ignore[attr-defined]
        rounds, outcome, said = disturbed(session, federation, lambda: os.kill(victim, signal.SIGKILL), every)
    equal(rounds, outcome, expected)
    (line,) = said
    where = "round " if every else "the start"
    assert line.startswith("the coordinator was lost (ActorDiedError); a new one goes on from " + where)


def test_a_coordinator_that_cannot_live_is_an_error_and_not_a_wait(federation: Federation):
    class Deadly(Strategy):
        def aggregate(self, view, state, update):
            os._exit(1)

    with open_session(federation.totals, TWO, in_process=False, verbose=False) as session:
        said: list[str] = []
        with pytest.raises(ResourceError, match="the coordinator was lost 4 times"):
            list(session.run(job(federation, Deadly()), None, 0, said.append))
    assert len(said) == 3


def test_an_actor_that_stands_still_is_started_anew(federation: Federation, expected: Outcome):
    resources = ResourcesSection(hospitals_per_actor=3, timeout=2)
    with open_session(federation.totals, resources, in_process=False, verbose=False) as session:
        victim = pid(session.actors[0])  # type: ignore[attr-defined]
        rounds, outcome, _ = disturbed(session, federation, lambda: os.kill(victim, signal.SIGSTOP))
    equal(rounds, outcome, expected)
    assert not psutil.pid_exists(victim) or psutil.Process(victim).status() == psutil.STATUS_ZOMBIE


def test_a_slow_actor_is_waited_for(federation: Federation, expected: Outcome):
    with open_session(federation.totals, TWO, in_process=False, verbose=False) as session:
        victim = pid(session.actors[0])  # type: ignore[attr-defined]

        def stall() -> None:
            os.kill(victim, signal.SIGSTOP)
            time.sleep(1)
            os.kill(victim, signal.SIGCONT)

        rounds, outcome, _ = disturbed(session, federation, stall)
    equal(rounds, outcome, expected)


class Endless:
    kind = "endless"

    def answer(self, rows: HospitalRows) -> np.ndarray:
        time.sleep(600 if len(rows.y) == 21 else 0)
        return np.zeros(1)


def test_an_actor_that_always_hangs_is_an_error_that_names_its_hospitals(federation: Federation):
    pool = RayPool(Placement(balance(federation.totals, 2), 1, 0), "cpu", timeout=1.0)
    pool.restart_seconds = 3.0
    pool.wait(60)
    work = job(federation, Strategy()).work
    said = r"resources.timeout: the actor of hospitals h\d, h\d, h\d did not answer within 1 s when asked for 'endless'"
    with pytest.raises(ResourceError, match=said):
        pool.ask(Inquiry(work, Endless(), 0))
    # One of them would sleep on and hold its CPU, and one may be on its way up again just now.
    for _ in range(120):
        for actor in pool.actors:
            ray.kill(actor)
        if ray.available_resources().get("CPU", 0.0) == ray.cluster_resources()["CPU"]:
            return
        time.sleep(0.5)
    raise AssertionError("actors were killed and still hold CPUs")


def test_data_that_goes_bad_names_the_hospital_and_the_run_goes_on_once_it_is_good(
    federation: Federation, expected: Outcome
):
    path = federation.folder / "X.npy"
    good = path.read_bytes()
    bad = np.load(path)
    bad[federation.rows(2, "train")] = np.nan

    def overwrite(content: bytes) -> None:
        with path.open("r+b") as file:  # in place, as processes have mapped it
            file.write(content)

    with open_session(federation.totals, TWO, in_process=False, verbose=False) as session:
        last: RunState | None = None
        rounds: list[Round] = []
        with pytest.raises(TrainingDiverged, match="made hospital 'h2' diverge in round"):  # noqa: PT012
            for event in session.run(job(federation, STRATEGY), None, 4):
                if isinstance(event, RunState):
                    last = event
                elif isinstance(event, Round):
                    rounds.append(event)
                    if event.round == 10:
                        overwrite(good[: len(good) - bad.nbytes] + bad.tobytes())
        assert last is not None
        overwrite(good)
        *rest, outcome = session.run(job(federation, STRATEGY), last, 0)
    told = {row.round: row for row in [*rounds, *rest]}
    equal(list(told.values()), outcome, expected)


RUN = {
    "data": {"source": "synthetic", "hospitals": 8, "rows": 500, "features": 4},
    "training": {"rounds": 2000, "batch_size": 32},
    "evaluation": {"every": 200},
    "selection": {"fraction": 0.5, "minimum": 2},
    "strategy": {"name": "chip", "clusters": 2},
    "checkpoint": {"every": 50},
    "tracking": {"uri": "none"},
}

RESUME = """
import pathlib, sys
from rich.console import Console
from raysim.cli.commands import resume_run
resume_run(pathlib.Path(sys.argv[1]), Console(width=200), in_process=True, verbose=False)
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the configuration and the files of its undisturbed run."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "c.yaml").write_text(yaml.safe_dump(RUN))
    subprocess.run(
        command("run", "c.yaml", "--out", "whole", "--in-process"), cwd=folder, env=environment(folder), check=True
    )
    return folder


def environment(folder: Path) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "HOME": str(folder), "RAYSIM_CACHE": str(folder / "cache")}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "raysim", *arguments]


@pytest.mark.parametrize(("how", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_driver_that_ends_leaves_a_folder_that_goes_on_and_no_process(undisturbed: Path, how, code):
    out = undisturbed / how.name
    driver = subprocess.Popen(
        command("run", "c.yaml", "--out", out.name),
        cwd=undisturbed,
        env=environment(undisturbed),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # A shell in the background lets its children ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    until(60, lambda: len(list(out.glob("checkpoints/round-*"))) > 1)
    family = psutil.Process(driver.pid).children(recursive=True)
    assert len(family) > 5
    if how is signal.SIGINT:
        os.killpg(driver.pid, how)  # as a terminal does: to the whole group
    else:
        os.kill(driver.pid, how)
    said = driver.communicate(timeout=60)[0]
    assert driver.returncode == code
    # After kill -9 Ray's two agents try for a minute to tell the dead head of it.
    agents = {"ray::DashboardAgent", "ray::RuntimeEnvAgent"} if how is signal.SIGKILL else set()
    until(30, lambda: {name for name in map(alive, family) if name} <= agents)
    if how is not signal.SIGKILL:
        assert f"'raysim resume {out.name}' goes on" in said
    assert not (out / "models.safetensors").exists()
    done = subprocess.run(
        [sys.executable, "-c", RESUME, str(out)], env=environment(undisturbed), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "chip goes on from round" in done.stdout
    for name in ("models.safetensors", "hospitals.csv", "egress.csv"):
        assert (out / name).read_bytes() == (undisturbed / "whole" / name).read_bytes(), name
    tables = [pd.read_csv(folder / "rounds.csv").drop(columns="seconds") for folder in (out, undisturbed / "whole")]
    pd.testing.assert_frame_equal(*tables, check_exact=True)


def until(seconds: float, condition: Any) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.05)


def alive(process: psutil.Process) -> str:
    """The name of a process that is there and no zombie, or nothing."""
    try:
        return process.name() if process.is_running() and process.status() != psutil.STATUS_ZOMBIE else ""
    except psutil.NoSuchProcess:
        return ""
