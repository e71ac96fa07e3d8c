"""Rounds past Ray: what goes through a socket, and that whatever goes wrong there is made good through Ray."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Client, wait
from typing import Any

import numpy as np
import pytest
import ray

from raysim.cluster import lines
from raysim.cluster import pool as pools
from raysim.cluster.lines import Lines, Number, Switchboard, packed
from raysim.cluster.parcels import Parcel
from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool, RayPool
from raysim.core.errors import TrainingDiverged
from raysim.data.federation import Federation
from raysim.engine.messages import ModelSpec, PartialResult, RoundPlan, Work
from raysim.strategies.base import Upload, Visit
from raysim.strategies.problem import LocalProblem
from raysim.training.base import Optimizer
from tests.conftest import MakeFederation, shared_ray

pytestmark = shared_ray("actors")

SIZES = [30, 8, 21, 14]


def plan(federation: Federation, **changes: Any) -> RoundPlan:
    """A round of everybody's, whose losses are asked for too."""
    model = ModelSpec("logistic_regression", None, {}, "default")
    work = Work(str(federation.folder), model, Optimizer("sgd", 0.1, 4), 2, 1, "float32")
    ids = np.arange(len(SIZES))
    bank = np.linspace(-0.1, 0.1, federation.X.shape[1] + 1, dtype=np.float32)[None]
    weight = np.full(len(ids), 1 / len(ids))
    problem = LocalProblem(start=np.zeros(len(ids), np.int64), upload=Upload(weight=weight))
    return replace(RoundPlan(work, 1, bank, ids, problem, losses_of={"global": np.zeros_like(ids)}), **changes)


def same(partials: list[PartialResult], expected: list[PartialResult]) -> None:
    for partial, other in zip(partials, expected, strict=True):
        np.testing.assert_array_equal(partial.ids, other.ids)
        np.testing.assert_array_equal(partial.units, other.units)
        np.testing.assert_array_equal(partial.loss_sums["global"], other.loss_sums["global"])


def placement() -> Placement:
    return Placement(balance(np.array(SIZES), 2), 1, 0)


@contextlib.contextmanager
def two_actors() -> Iterator[RayPool]:
    """Actors that end afterwards, as others on this Ray need their CPUs."""
    pool = RayPool(placement(), "cpu", timeout=600.0)
    try:
        pool.wait(600)
        yield pool
    finally:
        for actor in pool.actors:
            ray.kill(actor)


@pytest.fixture(scope="module")
def pool(ray_here: None) -> Iterator[RayPool]:
    with two_actors() as pool:
        yield pool


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, who is called gets time to answer."""
    monkeypatch.setattr(lines, "DIAL_SECONDS", 600.0)
    monkeypatch.setattr(pools, "DIAL_SECONDS", 600.0)


class TestWithRay:
    def test_a_round_over_lines_has_the_bits_of_one_process(self, pool: RayPool, federate: MakeFederation):
        round = plan(federate(SIZES))
        expected, _ = LocalPool(placement(), "cpu").round(round, None)
        for _ in range(2):
            partials, _ = pool.round(round, None)
            same(partials, expected)
            assert pool._lines.up == {0, 1}

    def test_models_that_stay_with_hospitals_go_through_ray(self, pool: RayPool, federate: MakeFederation):
        round = plan(federate(SIZES))
        assert round.problem is not None
        keeping = replace(round, problem=replace(round.problem, visit=Visit(keep=True)))
        partials, memory = pool.round(keeping, None)
        assert keeping.remembers
        assert all(isinstance(reference, ray.ObjectRef) for reference in memory)
        same(partials, LocalPool(placement(), "cpu").round(keeping, None)[0])
        assert sorted(pool.recall(memory)) == [0, 1, 2, 3]

    def test_a_lost_actor_answers_through_ray_and_then_on_a_new_line(self, pool: RayPool, federate: MakeFederation):
        round = plan(federate(SIZES))
        expected, _ = LocalPool(placement(), "cpu").round(round, None)
        pool.round(round, None)
        assert pool._lines.up == {0, 1}
        victim = ray.get(pool.actors[1].__ray_call__.remote(lambda _: os.getpid()))
        os.kill(victim, signal.SIGKILL)
        same(pool.round(round, None)[0], expected)
        same(pool.round(round, None)[0], expected)
        assert pool._lines.up == {0, 1}

    def test_an_error_is_that_of_the_call_through_ray(self, pool: RayPool, federate: MakeFederation):
        round = plan(federate(SIZES))
        wrong = replace(round, bank=np.full_like(round.bank, np.nan))
        with pytest.raises(TrainingDiverged, match="diverge in round 1"):
            pool.round(wrong, None)
        partials, _ = pool.round(round, None)
        same(partials, LocalPool(placement(), "cpu").round(round, None)[0])

    def test_an_actor_that_stands_still_is_started_anew_once(self, federate: MakeFederation):
        round = plan(federate(SIZES))
        with two_actors() as pool:
            pool.round(round, None)
            assert pool._lines.up == {0, 1}
            pool._timeout, pool.restart_seconds = 2.0, 600.0
            os.kill(ray.get(pool.actors[0].__ray_call__.remote(lambda _: os.getpid())), signal.SIGSTOP)
            same(pool.round(round, None)[0], LocalPool(placement(), "cpu").round(round, None)[0])

    def test_a_pool_that_travels_makes_its_own_calls(self, pool: RayPool, federate: MakeFederation):
        pool.round(plan(federate(SIZES)), None)
        there = pickle.loads(ray.cloudpickle.dumps(pool))
        assert there._lines.up == frozenset()
        there.round(plan(federate(SIZES)), None)
        assert there._lines.up == {0, 1}


def answering(serve: Callable[[Any], Any]) -> tuple[Lines, Number]:
    """A line to a switchboard of this process, as actor 3."""
    number = Switchboard(serve).number()
    assert number is not None
    ours = Lines()
    assert ours.dial(3, number)
    return ours, number


def echo(message: Any) -> Any:
    return message


class TestSockets:
    def test_what_is_answered_is_what_was_served(self):
        ours, _ = answering(lambda message: message * 2)
        for text in ("a", "b"):
            answers, late = ours.call([3], Parcel.of(text), 600)
            assert (answers, late) == ({3: text * 2}, [])

    def test_nobody_is_answered_without_the_key(self):
        ours, number = answering(lambda message: message)
        stranger = Lines()
        assert stranger.dial(0, Number(number.address, b"another"))  # it is on this host
        assert stranger.up == frozenset()
        # One who says nothing keeps nobody waiting.
        silent = Client(number.address, "AF_UNIX")
        assert ours.dial(4, number)
        assert ours.call([3, 4], Parcel.of(1), 600) == ({3: 1, 4: 1}, [])
        silent.close()

    def test_an_address_of_another_host_is_nobody(self):
        assert not Lines().dial(0, Number("\0raysim-nobody", b"key"))
        assert not Lines().dial(0, None)

    def test_a_process_has_one_number_and_none_where_there_are_no_such_sockets(self, monkeypatch: pytest.MonkeyPatch):
        board = Switchboard(echo)
        assert board.number() == board.number()
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr("sys.platform", "darwin")
            assert Switchboard(echo).number() is None

    def test_no_process_stays_for_the_sake_of_its_callers(self):
        before = set(threading.enumerate())
        ours, _ = answering(echo)
        ours.call([3], Parcel.of("x"), 600)
        started = set(threading.enumerate()) - before
        assert len(started) >= 2
        assert all(thread.daemon for thread in started)

    def test_a_line_on_which_nothing_can_be_sent_ends_alone(self):
        ours, _ = answering(echo)
        gone, theirs = Pipe()
        theirs.close()
        ours._lines[4] = gone
        assert ours.call([4, 3], Parcel.of("x"), 600) == ({3: "x"}, [])
        assert ours.up == {3}

    def test_an_error_there_ends_the_line_and_is_no_answer(self):
        def fails(message: Any) -> Any:
            raise SystemExit(message)

        ours, number = answering(fails)
        assert ours.call([3], Parcel.of("no"), 600) == ({}, [])
        assert ours.up == frozenset()
        assert ours.dial(3, number)

    def test_a_late_answer_is_never_taken_for_that_of_the_next_call(self):
        gate = threading.Event()

        def serve(message: str) -> str:
            if message == "first":
                gate.wait(600)
            return message

        ours, number = answering(serve)
        assert ours.call([3], Parcel.of("first"), 0.1) == ({}, [3])
        assert ours.up == frozenset()
        gate.set()
        assert ours.dial(3, number)
        assert ours.call([3], Parcel.of("second"), 600) == ({3: "second"}, [])

    def test_nobody_waits_for_the_late_once_time_is_up(self, monkeypatch: pytest.MonkeyPatch):
        """Three are called, and time is up when the first has answered."""
        gate, waits = threading.Event(), []

        def late(message: Any) -> Any:
            return gate.wait(60)

        def waiting(called: list[Any], seconds: float) -> list[Any]:
            waits.append(seconds)
            return wait(called, 600) if len(called) == 3 else []

        monkeypatch.setattr(lines, "wait", waiting)
        ours, _ = answering(echo)
        number = Switchboard(late).number()
        assert all(ours.dial(actor, number) for actor in (5, 1))
        assert ours.call([5, 3, 1], Parcel.of("x"), -1.0) == ({3: "x"}, [1, 5])
        assert waits == [0.0, 0.0]
        assert ours.up == {3}
        gate.set()

    def test_an_answer_is_read_while_another_is_waited_for(self, monkeypatch: pytest.MonkeyPatch):
        """A large one is not sent before somebody reads it."""
        is_sent, send = threading.Event(), Parcel.send

        def noting(parcel: Parcel, line: Any) -> None:
            send(parcel, line)
            if parcel.arrays:
                is_sent.set()

        def large(message: Any) -> Any:
            return np.zeros(2**22)

        monkeypatch.setattr(Parcel, "send", noting)
        ours, _ = answering(lambda message: is_sent.wait(60))
        other = Switchboard(large).number()
        assert ours.dial(4, other)
        answers, late = ours.call([3, 4], Parcel.of("x"), 600)
        assert answers[3] is True
        assert (len(answers), late) == (2, [])

    def test_an_interrupted_call_leaves_no_line_on_which_an_answer_is_due(self, monkeypatch: pytest.MonkeyPatch):
        ours, _ = answering(lambda message: message)

        def interrupted() -> float:
            raise KeyboardInterrupt

        monkeypatch.setattr(time, "monotonic", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ours.call([3], Parcel.of("x"), 600)
        assert ours.up == frozenset()


def test_large_plans_and_those_that_only_ray_can_pickle_go_through_ray(federate: MakeFederation):
    small = plan(federate(SIZES))
    assert packed(small) is not None
    assert packed(replace(small, bank=np.zeros((1, 2**20 - 2**12), np.float32))) is not None
    assert packed(replace(small, bank=np.zeros((1, 2**20 + 1), np.float32))) is None
    assert packed(replace(small, mixture=np.zeros((1, 2**20)))) is None
    nowhere = lambda: None  # noqa: E731
    nowhere.__qualname__ = "nowhere"
    for unknown in (lambda: None, nowhere, threading.Lock()):  # an error of another class each
        assert packed(replace(small, masking=unknown)) is None


def test_a_plan_of_just_the_most_bytes_is_packed(monkeypatch: pytest.MonkeyPatch, federate: MakeFederation):
    small = plan(federate(SIZES))
    monkeypatch.setattr(lines, "MOST_BYTES", Parcel.of(small).nbytes)
    assert packed(small) is not None
    monkeypatch.setattr(lines, "MOST_BYTES", lines.MOST_BYTES - 1)
    assert packed(small) is None
