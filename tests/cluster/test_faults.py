"""Faults injected for real: processes killed and stopped, data gone bad, a driver that ends without a word."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest
import ray
import yaml

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import RayPool
from raysim.config.evaluation import EvaluationSection
from raysim.config.resources import ResourcesSection
from raysim.core.errors import ResourceError, TrainingDiverged
from raysim.data.federation import Federation
from raysim.engine.job import Job, Outcome, Round, RunState
from raysim.engine.messages import Inquiry, ModelSpec, Work
from raysim.experiment.session import Session, open_session
from raysim.strategies.base import HospitalRows, Strategy
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.selections.sampling import All
from raysim.training.base import Optimizer
from tests.commands import Running, in_a_process, raysim, started
from tests.conftest import MakeFederation, play, shared_ray

SIZES = [12, 8, 21, 0, 14, 9]
ROUNDS = 24
TWO = ResourcesSection(hospitals_per_actor=3)

pytestmark = shared_ray("faults")

ROUND = 10
"""The round after which something happens."""


@dataclass(frozen=True)
class Gated(Chip):
    """CHiP-FL whose server waits, soon after the round in question, until ``gate`` is there.

    So a fault falls between its rounds and not after them, however fast or slow the machine is.
    """

    gate: str = ""

    def aggregate(self, view, state, update):
        if next(AGGREGATED[self.gate]) > ROUND:
            until(Path(self.gate).exists)
        return super().aggregate(view, state, update)


AGGREGATED: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
"""In the process of a coordinator: how often a strategy with this gate has aggregated."""


def until(condition: Callable[[], Any], seconds: float = 600) -> None:
    """Wait until something is so. The limit is for what never comes, not for what is slow."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.02)


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
    session: Session, federation: Federation, fault: Callable[[], None], gate: Path, every: int = 4
) -> tuple[list[Round], Any, list[str]]:
    """A run that meets ``fault()`` after its tenth round; its rounds, its outcome and what was said."""
    said: list[str] = []
    rounds, last = [], None
    for event in session.run(job(federation, Gated(clusters=2, gate=str(gate))), None, every, said.append):
        if isinstance(event, Round):
            rounds.append(event)
            if event.round == ROUND:
                fault()
                gate.touch()
        elif isinstance(event, Outcome):
            last = event
    return rounds, last, said


@pytest.fixture(scope="class")
def session(ray_here: None) -> Iterator[Session]:
    """Two actors for the hospitals of :func:`federation`."""
    with open_session(np.array(SIZES) + 6, TWO, in_process=False, verbose=False) as session:
        yield session


class TestOnOneSession:
    """Faults after which hospitals and coordinator stand again for the next; the last test is the end of them."""

    def test_a_hospital_actor_killed_in_a_round_repeats_it(
        self, session: Session, federation: Federation, expected: Outcome, tmp_path: Path
    ):
        victim = pid(session.actors[1])  # type: ignore[attr-defined]
        rounds, outcome, said = disturbed(session, federation, lambda: os.kill(victim, signal.SIGKILL), tmp_path / "g")
        equal(rounds, outcome, expected)
        assert said == []

    @pytest.mark.parametrize("every", [4, 0])
    def test_a_killed_coordinator_goes_on_and_it_is_said(
        self, session: Session, federation: Federation, expected: Outcome, tmp_path: Path, every: int
    ):
        victim = pid(session.coordinator)  # type: ignore[attr-defined]
        rounds, outcome, said = disturbed(
            session, federation, lambda: os.kill(victim, signal.SIGKILL), tmp_path / "g", every
        )
        equal(rounds, outcome, expected)
        (line,) = said
        where = "round " if every else "the start"
        assert line.startswith("the coordinator was lost (ActorDiedError); a new one goes on from " + where)

    def test_a_coordinator_that_is_lost_while_it_starts_is_started_once_more(
        self, session: Session, federation: Federation, expected: Outcome, tmp_path: Path, monkeypatch
    ):
        victim, made = pid(session.coordinator), []  # type: ignore[attr-defined]
        coordinate = type(session)._coordinate  # type: ignore[attr-defined]

        def killed_at_first(self: Session) -> Any:
            made.append(coordinate(self))
            if len(made) == 1:
                ray.kill(made[0])
            return made[-1]

        monkeypatch.setattr(type(session), "_coordinate", killed_at_first)
        rounds, outcome, said = disturbed(session, federation, lambda: os.kill(victim, signal.SIGKILL), tmp_path / "g")
        equal(rounds, outcome, expected)
        assert len(made) == 2
        first, second = said
        assert first == "the coordinator was lost (ActorDiedError) while it started"
        assert second.startswith("the coordinator was lost (ActorDiedError); a new one goes on from round ")

    def test_a_slow_actor_is_waited_for(
        self, session: Session, federation: Federation, expected: Outcome, tmp_path: Path
    ):
        victim = pid(session.actors[0])  # type: ignore[attr-defined]
        waking = Timer(1, os.kill, (victim, signal.SIGCONT))

        def stall() -> None:
            os.kill(victim, signal.SIGSTOP)
            waking.start()

        rounds, outcome, _ = disturbed(session, federation, stall, tmp_path / "g")
        waking.join()
        equal(rounds, outcome, expected)

    def test_data_that_goes_bad_names_the_hospital_and_the_run_goes_on_once_it_is_good(
        self, session: Session, federation: Federation, expected: Outcome, tmp_path: Path
    ):
        path, gate = federation.folder / "X.npy", tmp_path / "g"
        good = path.read_bytes()
        bad = np.load(path)
        bad[federation.rows(2, "train")] = np.nan

        def overwrite(content: bytes) -> None:
            with path.open("r+b") as file:  # in place, as processes have mapped it
                file.write(content)

        work = job(federation, Gated(clusters=2, gate=str(gate)))
        last: RunState | None = None
        rounds: list[Round] = []
        with pytest.raises(TrainingDiverged, match="made hospital 'h2' diverge in round"):  # noqa: PT012
            for event in session.run(work, None, 4):
                if isinstance(event, RunState):
                    last = event
                elif isinstance(event, Round):
                    rounds.append(event)
                    if event.round == ROUND:
                        overwrite(good[: len(good) - bad.nbytes] + bad.tobytes())
                        gate.touch()
        assert last is not None
        overwrite(good)
        *rest, outcome = session.run(work, last, 0)
        by_round = {row.round: row for row in [*rounds, *rest] if isinstance(row, Round)}
        equal(list(by_round.values()), outcome, expected)

    def test_a_coordinator_that_cannot_live_is_an_error_and_not_a_wait(self, session: Session, federation: Federation):
        class Deadly(Strategy):
            def aggregate(self, view, state, update):
                os._exit(1)

        said: list[str] = []
        with pytest.raises(ResourceError, match="the coordinator was lost 4 times"):
            list(session.run(job(federation, Deadly()), None, 0, said.append))
        assert len(said) == 3


def test_an_actor_that_stands_still_is_started_anew(federation: Federation, expected: Outcome, tmp_path: Path):
    # On a busy machine an actor that is merely slow may be started anew too, which changes nothing else.
    resources = ResourcesSection(hospitals_per_actor=3, timeout=4)
    stopped: list[int] = []

    def stop() -> None:
        stopped.append(pid(session.actors[0]))  # type: ignore[attr-defined]
        os.kill(stopped[0], signal.SIGSTOP)

    with open_session(federation.totals, resources, in_process=False, verbose=False) as session:
        rounds, outcome, _ = disturbed(session, federation, stop, tmp_path / "g")
    equal(rounds, outcome, expected)
    assert not psutil.pid_exists(stopped[0]) or psutil.Process(stopped[0]).status() == psutil.STATUS_ZOMBIE


class Endless:
    kind = "endless"

    def answer(self, rows: HospitalRows) -> np.ndarray:
        time.sleep(600 if len(rows.y) == 21 else 0)
        return np.zeros(1)


def test_an_actor_that_always_hangs_is_an_error_that_names_its_hospitals(federation: Federation):
    pool = RayPool(Placement(balance(federation.totals, 2), 1, 0), "cpu", timeout=1.0)
    pool.restart_seconds = 3.0
    pool.wait(600)
    work = job(federation, Strategy()).work
    said = r"resources.timeout: the actor of hospitals h\d, h\d, h\d did not answer within 1 s when asked for 'endless'"
    with pytest.raises(ResourceError, match=said):
        pool.ask(Inquiry(work, Endless(), 0))

    def ended() -> bool:
        # One of them would sleep on and hold its CPU, and one may be on its way up again just now.
        for actor in pool.actors:
            ray.kill(actor)
        free: float = ray.available_resources().get("CPU", 0.0)
        return free == ray.cluster_resources()["CPU"]

    until(ended)


HELD = """
import itertools, pathlib, time
from dataclasses import dataclass
from raysim.strategies.hospital_clusters.chip import Chip

AGGREGATED = itertools.count(1)


@dataclass(frozen=True)
class Held(Chip):
    hold: str = ""

    def aggregate(self, view, state, update):
        late = next(AGGREGATED) > 50
        while late and pathlib.Path(self.hold).exists():
            time.sleep(0.02)
        return super().aggregate(view, state, update)
"""
"""CHiP-FL whose server waits after 50 rounds for as long as the file ``hold`` is there."""

RUN = {
    "data": {"source": "synthetic", "hospitals": 8, "rows": 500, "features": 4},
    "training": {"rounds": 100, "batch_size": 32},
    "evaluation": {"every": 20},
    "selection": {"fraction": 0.5, "minimum": 2},
    "checkpoint": {"every": 20},
    "resources": {"hospitals_per_actor": 8},
    "tracking": {"uri": "none"},
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the configuration and the files of its undisturbed run."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "held.py").write_text(HELD)
    strategy = {"class": "held.Held", "clusters": 2, "hold": str(folder / "hold")}
    (folder / "c.yaml").write_text(yaml.safe_dump(RUN | {"strategy": strategy}))
    done = raysim(["run", "c.yaml", "--out", "whole", "--in-process"], folder, environment(folder))
    assert done.code == 0, done.err
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Folders of its own."""
    return {"HOME": str(folder), "RAYSIM_CACHE": str(folder / "cache")}


@pytest.mark.parametrize(("how", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_driver_that_ends_leaves_a_folder_that_goes_on_and_no_process(
    undisturbed: Path, how: signal.Signals, code: int
):
    out, hold = undisturbed / how.name, undisturbed / "hold"
    hold.touch()
    driver = driven(undisturbed, out)
    family = psutil.Process(driver.pid).children(recursive=True)
    assert len(family) > 5
    if how is signal.SIGINT:
        os.killpg(driver.pid, how)  # as a terminal does: to the whole group
    else:
        os.kill(driver.pid, how)
    done = driver.wait()
    said = done.out + done.err
    assert done.code == code, said
    until(lambda: not any(map(alive, family)))
    if how is not signal.SIGKILL:
        assert f"'raysim resume {out.name}' goes on" in said
        assert "SIGTERM received" not in said, "Ray's own trace"
    assert not (out / "models.safetensors").exists()
    hold.unlink()
    resumed = in_a_process(resume_here, [str(out)], undisturbed, environment(undisturbed))
    assert resumed.code == 0, resumed.err
    assert "goes on from round" in resumed.out
    for name in ("models.safetensors", "hospitals.csv", "egress.csv"):
        assert (out / name).read_bytes() == (undisturbed / "whole" / name).read_bytes(), name
    tables = [pd.read_csv(folder / "rounds.csv").drop(columns="seconds") for folder in (out, undisturbed / "whole")]
    pd.testing.assert_frame_equal(tables[0], tables[1], check_exact=True)


@pytest.mark.parametrize("part", ["gcs_server", "raylet"])
def test_a_ray_that_dies_under_a_run_is_an_error_in_one_line(undisturbed: Path, part: str):
    out, hold = undisturbed / part, undisturbed / "hold"
    hold.touch()
    driver = driven(undisturbed, out)
    (victim,) = [each for each in psutil.Process(driver.pid).children(recursive=True) if each.name() == part]
    victim.kill()
    done = driver.wait()
    hold.unlink()
    assert done.code == 2, done
    *before, error = (done.out + done.err).splitlines()
    told = ("reading data", "starting Ray", "8 hospitals, ", "Held: round", "raysim: Ray did not come up")
    assert all(line.startswith(told) for line in before), done
    assert error == (
        f"raysim: resources: Ray itself has failed ({part} has ended); what is finished is on disk: 'raysim resume' "
        "with its folder goes on"
    )


def driven(folder: Path, out: Path) -> Running:
    """``raysim run`` on Ray in its 51st round, where it waits."""
    while True:
        driver = started(["run", "c.yaml", "--out", out.name], folder, environment(folder))
        until(lambda: len(list(out.glob("checkpoints/round-*"))) > 1 or driver.ended())  # noqa: B023
        if not driver.ended():
            return driver
        done = driver.wait()
        assert "timed out during startup" in done.err, done  # Ray takes half a minute at most, a busy machine longer


def resume_here(folder: str) -> None:
    """``raysim resume`` without Ray."""
    from rich.console import Console

    from raysim.cli.commands import resume_run

    resume_run(Path(folder), Console(width=200), in_process=True, verbose=False)


def alive(process: psutil.Process) -> str:
    """The name of a process that is there and no zombie, or nothing."""
    try:
        return process.name() if process.is_running() and process.status() != psutil.STATUS_ZOMBIE else ""
    except psutil.NoSuchProcess:
        return ""
