"""Faults injected for real into hospitals and coordinators: processes killed and stopped, data gone bad."""

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
import psutil
import pytest
import ray

from raysim.cluster.coordinator import coordinate
from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import RayPool
from raysim.config.sections.evaluation import EvaluationSection
from raysim.config.sections.resources import ResourcesSection
from raysim.core.errors import HospitalFailed, ResourceError
from raysim.data.federation import Federation
from raysim.engine.job import Job, Outcome, Round
from raysim.engine.messages.plan import ModelSpec, Work
from raysim.engine.run_state import RunState
from raysim.engine.server.pool import Pool
from raysim.engine.server.remote import RemoteHospitals
from raysim.experiment.session import Session, open_session
from raysim.strategies.base import Call, Context, Send, Statistic, Strategy
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.selections.sampling import All
from raysim.training.base import Optimizer
from tests.conftest import MakeFederation, run_strategy, shared_ray
from tests.equality import same_models
from tests.waiting import until

SIZES = [12, 8, 21, 0, 14, 9]
ROUNDS = 24
TWO = ResourcesSection(hospitals_per_actor=3)

pytestmark = [*shared_ray("faults"), pytest.mark.faults]

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
    return run_strategy(federation, Chip(clusters=2), rounds=ROUNDS)


def equal(rounds: list[Round], outcome: Any, expected: Outcome) -> None:
    """The result of an undisturbed run, and every round reported once."""
    assert isinstance(outcome, Outcome)
    same_models(outcome, expected)
    assert [row.round for row in rounds] == list(range(1, ROUNDS + 1))
    np.testing.assert_equal(
        [row.metrics for row in outcome.rounds], [row.metrics for row in expected.rounds]
    )  # with NaN


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
        victim = pid(session.actors[1])
        rounds, outcome, said = disturbed(session, federation, lambda: os.kill(victim, signal.SIGKILL), tmp_path / "g")
        equal(rounds, outcome, expected)
        assert said == []

    @pytest.mark.parametrize("every", [4, 0])
    def test_a_killed_coordinator_goes_on_and_it_is_said(
        self, session: Session, federation: Federation, expected: Outcome, tmp_path: Path, every: int
    ):
        victim = pid(session.coordinator)
        rounds, outcome, said = disturbed(
            session, federation, lambda: os.kill(victim, signal.SIGKILL), tmp_path / "g", every
        )
        equal(rounds, outcome, expected)
        (line,) = said
        where = "round " if every else "the start"
        assert line.startswith("the coordinator was lost (ActorDiedError); a new coordinator resumes from " + where)

    def test_a_coordinator_that_is_lost_while_it_starts_is_started_once_more(
        self, session: Session, federation: Federation, expected: Outcome, tmp_path: Path, monkeypatch
    ):
        victim, made = pid(session.coordinator), []

        def killed_at_first(pool: Pool) -> Any:
            made.append(coordinate(pool))
            if len(made) == 1:
                ray.kill(made[0])
            return made[-1]

        monkeypatch.setattr("raysim.experiment.session.coordinate", killed_at_first)
        rounds, outcome, said = disturbed(session, federation, lambda: os.kill(victim, signal.SIGKILL), tmp_path / "g")
        equal(rounds, outcome, expected)
        assert len(made) == 2
        first, second = said
        assert first == "the coordinator was lost (ActorDiedError) while it started"
        assert second.startswith("the coordinator was lost (ActorDiedError); a new coordinator resumes from round ")

    def test_a_slow_actor_is_waited_for(
        self, session: Session, federation: Federation, expected: Outcome, tmp_path: Path
    ):
        victim = pid(session.actors[0])
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
        with pytest.raises(HospitalFailed, match=r"hospital 'h2' failed .* rows hold values that are not finite"):  # noqa: PT012
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


def test_an_actor_that_stands_still_is_restarted(federation: Federation, expected: Outcome, tmp_path: Path):
    # On a busy machine an actor that is merely slow may be started again too, which changes nothing else.
    resources = ResourcesSection(hospitals_per_actor=3, timeout=4)
    stopped: list[int] = []

    def stop() -> None:
        stopped.append(pid(session.actors[0]))
        os.kill(stopped[0], signal.SIGSTOP)

    with open_session(federation.totals, resources, in_process=False, verbose=False) as session:
        rounds, outcome, _ = disturbed(session, federation, stop, tmp_path / "g")
    equal(rounds, outcome, expected)
    assert not psutil.pid_exists(stopped[0]) or psutil.Process(stopped[0]).status() == psutil.STATUS_ZOMBIE


class Endless(Statistic):
    name = "endless"
    sent = Send((1,), how="each")

    def value(self, at: Context) -> np.ndarray:
        time.sleep(600 if len(at.rows.y) == 21 else 0)
        return np.zeros(1)


def test_an_actor_that_always_hangs_is_an_error_that_names_its_hospitals(federation: Federation):
    pool = RayPool(Placement(balance(federation.totals, 2), 1, 0), "cpu", timeout=1.0)
    pool.restart_seconds = 3.0
    pool.wait(600)
    work = job(federation, Strategy()).work
    said = r"resources.timeout: the actor of hospitals h\d, h\d, h\d did not answer within 1 s before round 1"
    hospitals = RemoteHospitals(pool, work, None, None, None)
    with pytest.raises(ResourceError, match=said):
        hospitals.answers(Call(Endless(), {}, np.arange(len(federation.hospitals))), 0, "test")

    def ended() -> bool:
        # One of them would sleep on and hold its CPU, and one may be on its way up again just now.
        for actor in pool.actors:
            ray.kill(actor)
        free: float = ray.available_resources().get("CPU", 0.0)
        return free == ray.cluster_resources()["CPU"]

    until(ended)
