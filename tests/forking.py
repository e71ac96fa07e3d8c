"""Two processes of which others are forked: ``forking.py EARLY LATE MODULES -- MORE``.

At the first request at either of two sockets it imports ``MODULES``, and forks itself: one process serves ``EARLY``,
and the other ``LATE``, once it has imported ``MORE``. A request is a line with the numbers of open files that come with
it, and a pickled function with its arguments and the search path to find it by. The answer is the number of the process
that runs it, and once that has ended its exit code, as :mod:`subprocess` has it. Where who has asked goes away before,
the process is killed. Both end when their input does, kill what still runs, and the first removes the sockets' folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import os
import pickle
import select
import shutil
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path


def serve(listening: socket.socket, modules: Sequence[str]) -> bytes | None:
    """Returns in each fork, with the request; else where the input has ended."""
    running: dict[int, socket.socket] = {}
    killed: set[int] = set()

    def reap(*_: object) -> None:
        for pid in list(running):
            with contextlib.suppress(ChildProcessError):  # a call of this amid another may have been the first
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    with running.pop(pid) as line:
                        answer(line, os.waitstatus_to_exitcode(status))

    signal.signal(signal.SIGCHLD, reap)
    while True:
        # The line of a fork that ends is closed, and then has no number that the loops below could use.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        killed &= running.keys()
        lines = {line.fileno(): pid for pid, line in running.items() if pid not in killed}
        events = select.poll()
        for each in (listening, sys.stdin):
            events.register(each, select.POLLIN)
        for number in lines:
            events.register(number, 0)  # says when the other end has been closed
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        ready = {number for number, _ in events.poll()}
        if sys.stdin.fileno() in ready:
            for pid in list(running):
                os.kill(pid, signal.SIGKILL)
            return None
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        for pid in {lines[number] for number in lines.keys() & ready} & running.keys():
            killed.add(pid)
            os.kill(pid, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        if listening.fileno() not in ready:
            continue
        line, _ = listening.accept()
        request, streams = received(line)
        for name in modules:
            importlib.import_module(name)
        modules = ()
        gc.freeze()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        if pid := os.fork():
            running[pid] = line
            answer(line, pid)
            for stream in streams:
                os.close(stream)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        for each in (listening, line, *running.values()):
            each.close()
        numbers, _, request = request.partition(b"\n")
        take(streams or [os.open(os.devnull, os.O_RDONLY)], [int(number) for number in numbers.split()] or [0])
        return request


def take(streams: Sequence[int], numbers: Sequence[int]) -> None:
    """Give open files the numbers that they had where they come from."""
    away = [fcntl.fcntl(stream, fcntl.F_DUPFD_CLOEXEC, max(numbers) + 1) for stream in streams]
    for stream in streams:
        os.close(stream)
    for stream, number in zip(away, numbers, strict=True):
        os.dup2(stream, number)
        os.close(stream)


def received(line: socket.socket) -> tuple[bytes, list[int]]:
    """What the other side sends before it closes its half, and the files that it hands over."""
    parts: list[bytes] = []
    files: list[int] = []
    while not parts or parts[-1]:
        part, more, *_ = socket.recv_fds(line, 1 << 16, 64)
        parts.append(part)
        files += more
    return b"".join(parts), files


def answer(line: socket.socket, number: int) -> None:
    """Tell a number, where there is still somebody who wants it."""
    with contextlib.suppress(OSError):
        line.sendall(f"{number}\n".encode())


def code_of(request: bytes) -> int:
    """Do what is asked for and wait for threads; the exit code that Python would end with."""
    code = 0
    try:
        sys.path[:], call = pickle.loads(request)
        function, arguments = pickle.loads(call)
        function(*arguments)
        threading._shutdown()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code


def main() -> bytes | None:
    """Returns in each fork, with the request; else None at the end, in the first process when the other has ended."""
    early, late = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    at = sys.argv.index("--")
    request, other, folder = None, 0, Path(early.getsockname()).parent
    ready, _, _ = select.select([early, late, sys.stdin], [], [])
    try:
        if sys.stdin not in ready:
            for name in sys.argv[3:at]:
                importlib.import_module(name)
            other = os.fork()
            (early if other == 0 else late).close()
            request = serve(late, sys.argv[at + 1 :]) if other == 0 else serve(early, ())
    finally:
        if request is None and other:
            os.waitpid(other, 0)
        if request is None and (other or sys.stdin in ready):
            shutil.rmtree(folder)
    return request


if __name__ == "__main__":
    request = main()
    # Python would take seconds to give back all modules.
    os._exit(0 if request is None else code_of(request))
