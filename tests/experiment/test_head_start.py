"""A run begins in this process, and actors of a standing Ray take over: the same numbers, whoever plays a round."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from raysim.config.sections.resources import ResourcesSection
from raysim.core.errors import ResourceError
from raysim.data.federation import Federation
from raysim.engine.cadence import Every
from raysim.engine.job import Outcome, Round, RunState
from raysim.experiment import head_start
from raysim.experiment.head_start import HeadStart, open_head_start
from raysim.strategies.base import FederationView, State, Update
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.personal.ditto import Ditto
from tests.conftest import MakeFederation, job_of, play, shared_ray
from tests.equality import same_models

pytestmark = shared_ray("actors")

SIZES = [30, 8, 21, 14]
MANY = 10**6
"""Rounds, more than are played before the actors are up."""

AGGREGATED: defaultdict[int, Iterator[int]] = defaultdict(lambda: itertools.count(1))
"""How often the server of each test's strategy has aggregated in this process, by the strategy's ``job``."""

CADENCES: list[head_start._Cadence] = []


@dataclass(frozen=True)
class Held(Ditto):
    """Ditto whose server waits, in its third round in the process of the command, until the actors are up."""

    lam: float = 0.5
    job: int = 0
    process: int = 0

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        if os.getpid() == self.process and next(AGGREGATED[self.job]) == 3:
            assert CADENCES[-1].handing_over.wait(300)
        return super().aggregate(view, state, update)


class Recorded(head_start._Cadence):
    def __init__(self, every: Every) -> None:
        super().__init__(every)
        CADENCES.append(self)


@contextlib.contextmanager
def opened(federation: Federation, **resources: object) -> Iterator[HeadStart]:
    section = ResourcesSection.model_validate({"cpus_per_actor": 0.5, "hospitals_per_actor": 2} | resources)
    names = [str(i) for i in range(len(SIZES))]
    with open_head_start(federation.totals, section, names, verbose=False) as session:
        yield session


@pytest.mark.parametrize("every", [0, 1, 2, "auto"])
def test_actors_go_on_where_this_process_stood(
    federate: MakeFederation, monkeypatch: pytest.MonkeyPatch, every: Every
) -> None:
    monkeypatch.setattr(head_start, "_Cadence", Recorded)
    federation, said = federate(SIZES), []
    held = Held(job=len(CADENCES), process=os.getpid())
    alone = play(federation, Ditto(lam=0.5), rounds=6, actors=2)
    with opened(federation) as session:
        events = list(session.run(job_of(federation, held, rounds=6), every=every, say=said.append))
        assert said == ["after round 3: 2 actors, 2 hospitals each"]
        # A further job is played by the actors alone.
        *_, again = session.run(job_of(federation, Ditto(lam=0.5), rounds=6))
    checkpoints = {0: [], "auto": [3], 1: [1, 2, 3, 4, 5, 6], 2: [2, 3, 4, 6]}
    assert [event.round for event in events if isinstance(event, RunState)] == checkpoints[every]
    assert [event.round for event in events if isinstance(event, Round)] == [1, 2, 3, 4, 5, 6]
    for outcome in (events[-1], again):
        assert isinstance(outcome, Outcome)
        same(outcome, alone)


def same(one: Outcome, other: Outcome) -> None:
    same_models(one, other)
    for name in ("round", "metrics", "training_loss", "bytes_up", "bytes_down"):
        np.testing.assert_equal(
            [getattr(row, name) for row in one.rounds], [getattr(row, name) for row in other.rounds]
        )


def test_a_job_that_ends_before_has_its_outcome(federate: MakeFederation, monkeypatch: pytest.MonkeyPatch):
    federation = federate(SIZES)
    monkeypatch.setattr(HeadStart, "_comes_up", lambda session: False)  # However fast the actors are.
    said: list[str] = []
    with opened(federation) as session:
        *rows, outcome = session.run(job_of(federation, Chip(clusters=2), rounds=1), say=said.append)
    assert [row.round for row in rows if isinstance(row, Round)] == [1]
    assert isinstance(outcome, Outcome)
    np.testing.assert_array_equal(outcome.bank, play(federation, Chip(clusters=2), rounds=1).bank)
    assert said == []


def test_what_the_cluster_cannot_give_is_an_error_however_soon_the_job_has_ended(federate: MakeFederation):
    federation = federate(SIZES)
    with opened(federation, cpus_per_actor=10**6) as session, pytest.raises(ResourceError, match="cpus_per_actor"):
        list(session.run(job_of(federation, Chip(clusters=2), rounds=1)))


def test_one_that_nobody_hears_any_more_stops(federate: MakeFederation):
    federation = federate(SIZES)
    before = set(threading.enumerate())
    with opened(federation) as session:
        events = session.run(job_of(federation, Chip(clusters=2), rounds=MANY))
        next(iter(events))
        (playing,) = [each for each in set(threading.enumerate()) - before if "_run" in each.name]
        events.close()  # type: ignore[attr-defined]
        playing.join(60)
        assert not playing.is_alive()


def test_a_failing_round_here_is_the_runs_error(federate: MakeFederation, monkeypatch: pytest.MonkeyPatch):
    federation = federate(SIZES)
    monkeypatch.setattr(HeadStart, "_comes_up", lambda session: False)

    class Broken(Chip):
        def aggregate(self, view, state, update):  # type: ignore[no-untyped-def]
            if view.round == 2:
                raise ZeroDivisionError("by hand")
            return super().aggregate(view, state, update)

    with opened(federation) as session, pytest.raises(ZeroDivisionError, match="by hand"):
        list(session.run(job_of(federation, Broken(clusters=2), rounds=MANY)))


def test_a_round_that_never_ends_is_an_error(federate: MakeFederation):
    federation = federate(SIZES)
    done = threading.Event()

    class Endless(Chip):
        def aggregate(self, view, state, update):  # type: ignore[no-untyped-def]
            done.wait()
            return super().aggregate(view, state, update)

    with (
        opened(federation, timeout=0.1) as session,
        pytest.raises(ResourceError, match=r"resources\.timeout: no event of a round within 0\.1 s"),
    ):
        list(session.run(job_of(federation, Endless(clusters=2))))
    done.set()
