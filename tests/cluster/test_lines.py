"""What goes through a socket between the coordinator and an actor of its host, and what goes wrong there."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Client, Connection, Listener
from selectors import PollSelector
from typing import Any

import numpy as np
import pytest

from raysim.cluster import lines
from raysim.cluster.lines import Lines, Number, Switchboard, packed
from raysim.cluster.parcels import Parcel, Steps, at_once, receiving
from raysim.data.federation import Federation
from raysim.engine.messages import ModelSpec, RoundPlan, Work
from raysim.strategies.base import Upload
from raysim.strategies.problem import LocalProblem
from raysim.training.base import Optimizer
from tests.conftest import MakeFederation

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


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, who is called gets time to answer."""
    monkeypatch.setattr(lines, "DIAL_SECONDS", 600)


def answering(serve: Callable[[Any], Any]) -> tuple[Lines, Number]:
    """A line to a switchboard of this process, as actor 3."""
    number = Switchboard(serve).number()
    assert number is not None
    ours = Lines()
    assert ours.dial(3, number)
    return ours, number


def echo(message: Any) -> Any:
    return message


def unanswered() -> tuple[Connection, Connection]:
    """A line that nobody answers, and its other end."""
    line, theirs = Pipe()
    os.set_blocking(line.fileno(), False)
    return line, theirs


def large_plan() -> Parcel:
    """Larger than what a socket holds for who does not read."""
    return Parcel.of(np.zeros(2**20))


def test_what_is_answered_is_what_was_served():
    ours, _ = answering(lambda message: message * 2)
    for text in ("a", "b"):
        answers, late = ours.call([3], Parcel.of(text), 600)
        assert (answers, late) == ({3: text * 2}, [])
    assert not os.get_blocking(ours._lines[3].fileno())


def test_nobody_is_answered_without_the_key():
    ours, number = answering(lambda message: message)
    stranger = Lines()
    assert stranger.dial(0, Number(number.address, b"another"))  # it is on this host
    assert stranger.up == frozenset()
    # One who says nothing keeps nobody waiting.
    silent = Client(number.address, "AF_UNIX")
    assert ours.dial(4, number)
    assert ours.call([3, 4], Parcel.of(1), 600) == ({3: 1, 4: 1}, [])
    silent.close()


def test_a_stranger_who_says_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch):
    _, number = answering(echo)
    monkeypatch.setattr(lines, "DIAL_SECONDS", 1)
    with Client(number.address, "AF_UNIX") as silent:
        silent.recv_bytes()  # the question for the key
        assert silent.poll(60)
        with pytest.raises(EOFError):
            silent.recv_bytes()


def test_a_caller_who_cannot_be_let_in_keeps_no_other_out(monkeypatch: pytest.MonkeyPatch):
    accept, errors = Listener.accept, [OSError(24, "Too many open files")] * 2

    def accepting(listener: Listener) -> Any:
        if errors:
            raise errors.pop()
        return accept(listener)

    monkeypatch.setattr(Listener, "accept", accepting)
    ours, _ = answering(echo)
    assert not errors
    assert ours.call([3], Parcel.of("x"), 600) == ({3: "x"}, [])


def test_an_address_of_another_host_is_nobody():
    assert not Lines().dial(0, Number("\0raysim-nobody", b"key"))
    assert not Lines().dial(0, None)


def test_a_process_has_one_number_and_none_where_there_are_no_such_sockets(monkeypatch: pytest.MonkeyPatch):
    board = Switchboard(echo)
    assert board.number() == board.number()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("sys.platform", "darwin")
        assert Switchboard(echo).number() is None


def test_no_process_stays_for_the_sake_of_its_callers():
    before = set(threading.enumerate())
    ours, _ = answering(echo)
    ours.call([3], Parcel.of("x"), 600)
    started = set(threading.enumerate()) - before
    assert len(started) >= 2
    assert all(thread.daemon for thread in started)


def test_a_line_on_which_nothing_can_be_sent_ends_alone():
    ours, _ = answering(echo)
    gone, theirs = Pipe()
    theirs.close()
    ours._lines[4] = gone
    assert ours.call([4, 3], Parcel.of("x"), 600) == ({3: "x"}, [])
    assert ours.up == {3}


def test_an_error_there_ends_the_line_and_is_no_answer():
    def fails(message: Any) -> Any:
        raise SystemExit(message)

    ours, number = answering(fails)
    assert ours.call([3], Parcel.of("no"), 600) == ({}, [])
    assert ours.up == frozenset()
    assert ours.dial(3, number)


def test_a_late_answer_is_never_taken_for_that_of_the_next_call():
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


def test_nobody_waits_for_the_late_once_time_is_up(monkeypatch: pytest.MonkeyPatch):
    """Three are called, and time is up when the first has answered."""
    called, over, waits = threading.Event(), threading.Event(), []

    class Waiting(PollSelector):
        """Waits for the answer of who answers once all are called, and else as long as it is told to."""

        def select(self, timeout: float | None = None) -> Any:
            waits.append(timeout)
            if len(waits) == 2:
                called.set()
                return super().select(600)
            return super().select(timeout)

    def late(message: Any) -> Any:
        return over.wait(60)

    monkeypatch.setattr(lines, "PollSelector", Waiting)
    ours, _ = answering(lambda message: called.wait(60))
    number = Switchboard(late).number()
    assert all(ours.dial(actor, number) for actor in (5, 1))
    assert ours.call([5, 3, 1], Parcel.of("x"), -1.0) == ({3: True}, [1, 5])
    assert waits == [0.0, 0.0, 0.0]
    assert ours.up == {3}
    over.set()


def test_an_answer_is_read_while_another_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    """A large one is not sent before somebody reads it."""
    is_sent, sending = threading.Event(), Parcel.sending

    def noting(parcel: Parcel, line: int) -> Steps[None]:
        yield from sending(parcel, line)
        if parcel.arrays:
            is_sent.set()

    def large(message: Any) -> Any:
        return np.zeros(2**22)

    monkeypatch.setattr(Parcel, "sending", noting)
    ours, _ = answering(lambda message: is_sent.wait(60))
    other = Switchboard(large).number()
    assert ours.dial(4, other)
    answers, late = ours.call([3, 4], Parcel.of("x"), 600)
    assert answers[3] is True
    assert (len(answers), late) == (2, [])


def test_who_does_not_read_the_plan_is_late():
    ours = Lines()
    ours._lines[4], theirs = unanswered()
    assert ours.call([4], large_plan(), 0.01) == ({}, [4])
    assert ours.up == frozenset()
    theirs.close()


def test_others_get_the_plan_while_one_does_not_read_it():
    called = threading.Event()

    def serve(message: Any) -> str:
        called.set()
        return "one"

    ours, _ = answering(serve)
    ours._lines[1], theirs = unanswered()

    def read_then() -> None:
        called.wait(60)
        at_once(receiving(theirs.fileno()))
        at_once(Parcel.of("two").sending(theirs.fileno()))

    reader = threading.Thread(target=read_then)
    reader.start()
    assert ours.call([1, 3], large_plan(), 600) == ({3: "one", 1: "two"}, [])
    reader.join()


def test_who_stops_within_an_answer_is_late():
    ours = Lines()
    ours._lines[4], theirs = unanswered()
    text, (array,) = large_plan()
    os.write(theirs.fileno(), text + array[:1000])
    assert ours.call([4], Parcel.of("x"), 0.01) == ({}, [4])
    assert ours.up == frozenset()
    theirs.close()


@pytest.mark.parametrize("messages", [0, 1])
def test_who_stops_at_a_first_call_has_no_line(monkeypatch: pytest.MonkeyPatch, messages: int):
    """It says nothing, or asks for the key and does not hear it."""
    monkeypatch.setattr(lines, "DIAL_SECONDS", 1)
    over = threading.Event()

    def listen(listener: Listener) -> None:
        with listener.accept() as caller:
            if messages:
                caller.send_bytes(b"#CHALLENGE#" + bytes(20))
            over.wait(60)

    number = Number(f"\0raysim-{secrets.token_hex(16)}", b"key")
    with Listener(number.address, "AF_UNIX") as listener:
        thread = threading.Thread(target=listen, args=[listener])
        thread.start()
        ours = Lines()
        assert ours.dial(3, number)
        assert ours.up == frozenset()
        over.set()
        thread.join()


def test_an_interrupted_call_leaves_no_line_on_which_an_answer_is_due(monkeypatch: pytest.MonkeyPatch):
    gate, moments = threading.Event(), [0.0, 0.0]
    ours, _ = answering(lambda message: gate.wait(60))

    def interrupted() -> float:
        """When the plan has been sent."""
        if moments:
            return moments.pop()
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "monotonic", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ours.call([3], Parcel.of("x"), 600)
    assert ours.up == frozenset()
    gate.set()


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
