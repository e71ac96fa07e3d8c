"""Rounds that bypass Ray: the coordinator and the hospital actors of its host exchange them through sockets.

Ray puts the plan of a round into its object store and answers through it, which takes several milliseconds; a socket
takes a fraction of one. Ray still places the actors, starts them again, and carries every other call: to actors on
other hosts, with rows that are shipped, with models that stay where they were made. It is the fallback, too: where a
line gives no answer, because its process has died or its call has raised an error, the same call is made through Ray,
and only Ray's answer counts. Calls are pure, so they may be repeated.

A line is a Unix socket without a file, which ends with its process. Both ends must have the actor's key, which travels
through Ray alone.
"""

from __future__ import annotations

import os
import pickle
import secrets
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from selectors import EVENT_WRITE, PollSelector
from threading import Thread

from raysim.cluster.parcels import Parcel, Steps, at_once, receiving
from raysim.engine.messages import PartialResult, RoundPlan

MOST_BYTES = 2**22
"""The largest plan that goes through sockets. Of a larger one Ray keeps one copy for all actors of a host."""

DIAL_SECONDS = 5
"""How long an actor may take for each answer of a first call; one that takes longer is called through Ray."""

BROKEN = (OSError, EOFError, AuthenticationError)
"""What a line raises when the process at its other end is not there, or has gone."""


@dataclass(frozen=True)
class Number:
    """Where an actor can be called."""

    address: str
    """The name of its socket, which means nothing on another host."""
    key: bytes
    """The secret that a caller must have."""


class Switchboard:
    """An actor's end: answers each caller, on a thread of its own, with what ``serve`` makes of a plan."""

    def __init__(self, serve: Callable[[RoundPlan], PartialResult]) -> None:
        self._serve = serve
        self._number: Number | None = None

    def number(self) -> Number | None:
        """Where this process can be called; None on a system that has no such sockets."""
        if self._number is None and sys.platform == "linux":
            number = Number(f"\0raysim-{secrets.token_hex(16)}", secrets.token_bytes(32))
            # A caller is authenticated on a thread of its own, so that a slow one delays nobody.
            listener = Listener(number.address, "AF_UNIX", backlog=16)
            Thread(target=self._listen, args=(listener, number.key), daemon=True).start()
            self._number = number
        return self._number

    def _listen(self, listener: Listener, key: bytes) -> None:
        while True:
            try:
                caller = listener.accept()
            except OSError:  # it has gone again, or this process has too many files open for now
                time.sleep(0.1)
                continue
            Thread(target=self._answer, args=(caller, key), daemon=True).start()

    def _answer(self, caller: Connection, key: bytes) -> None:
        with caller:
            try:
                _limit(caller.fileno(), DIAL_SECONDS)  # a stranger, who may say nothing
                deliver_challenge(caller, key)
                answer_challenge(caller, key)
                _limit(caller.fileno(), 0)
                while True:
                    plan = at_once(receiving(caller.fileno()))
                    at_once(Parcel.of(self._serve(plan)).sending(caller.fileno()))
            except BaseException:  # an error is raised again, and told, where the call is made through Ray
                return


class Lines:
    """The coordinator's end: a line to each actor that has answered. Never sent to another process."""

    def __init__(self) -> None:
        self._lines: dict[int, Connection] = {}

    @property
    def up(self) -> frozenset[int]:
        """The actors that have a line."""
        return frozenset(self._lines)

    def dial(self, actor: int, number: Number | None) -> bool:
        """Call an actor, and keep the line if it answers. Returns whether the actor is on this host."""
        if number is None:
            return False
        try:
            line = _called(number.address)
        except BROKEN:
            return False
        try:
            answer_challenge(line, number.key)
            deliver_challenge(line, number.key)
            os.set_blocking(line.fileno(), False)
            self._lines[actor] = line
        except BROKEN:
            line.close()
        return True

    def call(self, actors: Iterable[int], plan: Parcel, seconds: float) -> tuple[dict[int, PartialResult], list[int]]:
        """Let ``actors`` that have lines play a plan, all at once.

        Returns the answers by actor, and the actors that were late: that had not taken the plan, or not given a whole
        answer. A line that gave no answer is closed.
        """
        answers: dict[int, PartialResult] = {}
        until = time.monotonic() + seconds
        try:
            with PollSelector() as waiting:
                for actor in actors:
                    waiting.register(line := self._lines[actor], EVENT_WRITE, (actor, _exchange(plan, line.fileno())))
                # No actor is waited for alone: others take the plan, or give answers, while one stands still.
                while waiting.get_map() and (ready := waiting.select(max(0.0, until - time.monotonic()))):
                    for key, _ in ready:
                        actor, exchange = key.data
                        try:
                            waiting.modify(key.fileobj, next(exchange), key.data)
                        except StopIteration as end:
                            answers[actor] = end.value
                            waiting.unregister(key.fileobj)
                        except BROKEN:
                            waiting.unregister(key.fileobj)
                            self._hang_up(actor)
                late = sorted(key.data[0] for key in waiting.get_map().values())
            for actor in late:
                self._hang_up(actor)
        except BaseException:
            # A late answer would be taken for the answer to the next call.
            for actor in self.up:
                self._hang_up(actor)
            raise
        return answers, late

    def _hang_up(self, actor: int) -> None:
        self._lines.pop(actor).close()


def _called(address: str) -> Connection:
    """A connection that waits ``DIAL_SECONDS`` at most, for who is called and then for each message."""
    with socket.socket(socket.AF_UNIX) as caller:
        _limit(caller.fileno(), DIAL_SECONDS)
        caller.connect(address)
        return Connection(caller.detach())


def _limit(file: int, seconds: int) -> None:
    """Let a socket that blocks raise ``BlockingIOError`` where it would for more than ``seconds``; 0: never."""
    with socket.socket(fileno=os.dup(file)) as same:
        for limit in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            same.setsockopt(socket.SOL_SOCKET, limit, struct.pack("ll", seconds, 0))


def _exchange(plan: Parcel, line: int) -> Steps[PartialResult]:
    yield from plan.sending(line)
    answer: PartialResult = yield from receiving(line)
    return answer


def packed(plan: RoundPlan) -> Parcel | None:
    """A plan as bytes for sockets; None for one that is too large, or that only Ray can pickle."""
    try:
        parcel = Parcel.of(plan)
    except (pickle.PicklingError, AttributeError, TypeError):  # it holds an object of a class without an import path
        return None
    return parcel if parcel.nbytes <= MOST_BYTES else None
