"""A process that Ray's workers are forked from, where Ray is started here.

Importing Ray and raysim takes a second of processor time and 70 MB; without forks every worker would pay for it.

``fork_server.py SOCKET FOLDER MODULES -- MORE`` imports ``MODULES``, those of raysim only where it is the raysim in
``FOLDER``, and then serves ``worker_start.py``, which Ray runs in place of a worker. While nobody asks for a worker it
imports ``MORE``, one after the other. It ends, and ends its workers, when the process at the other end of its input or
Ray's node has ended. This file is run as a program, and must not import raysim itself.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import json
import marshal
import os
import re
import runpy
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

FIRST_JOB = "01000000"
"""The only job of a Ray that is started for one driver."""

GRACE_SECONDS = 2.0
"""How long workers may take to end by themselves when their node has ended."""

OOM = "1000"
"""The ``oom_score_adj`` of a worker, as Ray sets it: where memory runs out, workers are ended first."""

HEAD = 8
"""Size of the header of a request, which holds its length."""

SELDOM = 10_000, 20, 20
"""How seldom it and its workers look for objects that only refer to each other, as the command does."""


class Request(NamedTuple):
    """What a worker is to be: its command, Ray's runtime environment as JSON, environment variables, folder,
    streams.
    """

    command: list[str]
    context: str
    environment: dict[str, str]
    folder: str
    streams: list[int]


class ForkServer:
    """Forks at each request that comes to ``listening``; without ``forks`` it declines, and Ray starts its workers.

    ``further`` is called while no request waits: it imports one more module, and returns whether there are more.
    """

    def __init__(self, listening: socket.socket, further: Callable[[], bool], *, forks: bool) -> None:
        self._listening, self._further, self._forks = listening, further, forks
        self._node: int | None = None  # a descriptor of the process of Ray's node
        self._workers: set[int] = set()
        signal.signal(signal.SIGCHLD, lambda *_: self._reap())

    def serve(self) -> Request:
        """Return in each fork, with its request; never returns in the server itself."""
        more = True
        while True:
            watched = [self._listening.fileno(), 0, *([] if self._node is None else [self._node])]
            ready, _, _ = select.select(watched, [], [], 0 if more else None)
            if not ready:
                more = self._further()
            if 0 in ready or self._node in ready:
                self._end()
            if self._listening.fileno() in ready:
                line, _ = self._listening.accept()
                with line:
                    request = self._answered(line)
                if request is not None:
                    return request

    def _answered(self, line: socket.socket) -> Request | None:
        """Answer one caller. Returns the request in a fork that was made for it, and None in the server."""
        try:
            head, streams, _, _ = socket.recv_fds(line, HEAD, 3)
            command, context, environment, folder = marshal.loads(_received(line, int.from_bytes(head, "little")))
        except (OSError, ValueError, EOFError):  # it has gone
            return None
        request = Request(command, context, environment, folder, streams)
        of_first_job = request.environment.get("RAY_JOB_ID") == FIRST_JOB
        takes = self._forks and of_first_job and variables(request) is not None
        if takes and self._node is None and hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):  # the system does not let it: then the end of the driver is this one's
                self._node = os.pidfd_open(int(request.environment["RAY_RAYLET_PID"]))
        worker = os.fork() if takes else None
        if worker == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._listening.close()
            if self._node is not None:
                os.close(self._node)
            return request
        if worker is not None:
            self._workers.add(worker)
        for stream in streams:
            os.close(stream)
        with contextlib.suppress(OSError):  # it has gone; the worker registers, or finds that nobody knows it
            line.sendall(b"\1" if takes else b"\0")
        return None

    def _reap(self) -> int:
        """Reap workers that have ended, and return how many are left. At once, as others poll for their processes."""
        for worker in list(self._workers):
            with contextlib.suppress(ChildProcessError):  # the signal's call of this amid another may be first
                if os.waitpid(worker, os.WNOHANG)[0]:
                    self._workers.discard(worker)
        return len(self._workers)

    def _end(self) -> None:
        """End, once all workers have."""
        until = time.monotonic() + GRACE_SECONDS
        while self._reap() and time.monotonic() < until:
            time.sleep(0.02)
        for worker in self._workers:
            os.kill(worker, signal.SIGKILL)
        os._exit(0)


def _received(line: socket.socket, length: int) -> bytes:
    text = b""
    while len(text) < length:
        if not (piece := line.recv(length - len(text))):
            raise EOFError
        text += piece
    return text


def split(modules: list[str]) -> tuple[list[str], list[str]]:
    """The modules before ``--``, and those after it."""
    at = modules.index("--") if "--" in modules else len(modules)
    return modules[:at], modules[at + 1 :]


def preload(folder: Path, modules: list[str]) -> None:
    """Import ``modules``, those of raysim where it is the one in ``folder``; what cannot be imported is left out."""
    spec = importlib.util.find_spec("raysim")
    here = spec is not None and spec.origin is not None and Path(spec.origin).parent == folder
    with no_number_drawn():
        for name in modules:
            if here or name.partition(".")[0] != "raysim":
                try:
                    importlib.import_module(name)
                except Exception:  # the worker itself will say why
                    continue
    gc.collect()
    gc.freeze()  # else garbage collection in a fork would touch, and so copy, every page


@contextlib.contextmanager
def no_number_drawn() -> Iterator[None]:
    """Keep modules that define actor classes from drawing ids with Ray's own random generator.

    A generator that has drawn once is seeded: all forks would draw the same numbers, give different objects one id, and
    read each other's.
    """
    actor: Any = importlib.import_module("ray.actor")
    kind = actor.ActorClassID

    class Drawn:
        @staticmethod
        def from_random() -> Any:
            return kind(os.urandom(kind.size()))

    actor.ActorClassID = Drawn
    try:
        yield
    finally:
        actor.ActorClassID = kind


def forks_differ() -> bool:
    """Whether Ray's generator draws different numbers in forks of this process."""
    draw, (reading, writing) = importlib.import_module("ray").ObjectID.from_random, os.pipe()
    drawn = set()
    for _ in range(2):
        child = os.fork()
        if child == 0:
            os.write(writing, draw().binary())
            os._exit(0)
        os.waitpid(child, 0)
        drawn.add(os.read(reading, 64))
    os.close(reading)
    os.close(writing)
    return len(drawn) == 2


def variables(request: Request) -> dict[str, str] | None:
    """The environment variables that the request asks for; None where its runtime environment asks for anything
    else.
    """
    asked = json.loads(request.context or "{}")
    named: dict[str, str] = asked.pop("env_vars", None) or {}
    executable = asked.pop("py_executable", None)
    return None if any(asked.values()) or executable not in (None, sys.executable) else named


def become(request: Request, searched: str) -> None:
    """Run a worker in this process, which was forked for it. ``searched``: the first folder of Python's own."""
    os.setpgid(0, 0)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM)
    for number, stream in enumerate(request.streams):
        os.dup2(stream, number)
        os.close(stream)
    server = os.environ["RAY_RAYLET_PID"]
    os.environ.clear()
    os.environ.update(request.environment, RAY_RAYLET_PID=server)
    for name, value in (variables(request) or {}).items():
        os.environ[name] = re.sub(r"\$\{[A-Z0-9_]+\}", "", os.path.expandvars(value))  # as Ray does
    words = request.command[1:]
    os.chdir(request.folder)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # all forks would draw the same
    sys.argv[:] = words
    sys.path.insert(sys.path.index(searched), os.path.dirname(words[0]))
    runpy.run_path(words[0], run_name="__main__")


def main() -> None:
    """Serve, and run a worker in each fork."""
    gc.set_threshold(*SELDOM)
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))  # as Ray does in its processes
    # Ray reads both when it is imported. A worker ends when the process that it takes for its node ends.
    os.environ["RAY_JOB_ID"], os.environ["RAY_RAYLET_PID"] = FIRST_JOB, str(os.getpid())
    searched, listening, folder = sys.path[0], socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2])
    needed, more = split(sys.argv[3:])
    preload(folder, needed)

    def further() -> bool:
        if more:
            preload(folder, [more.pop(0)])
        return bool(more)

    become(ForkServer(listening, further, forks=forks_differ()).serve(), searched)


if __name__ == "__main__":
    main()
