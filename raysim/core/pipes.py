"""Standard streams without a reader, as in ``raysim list strategies | head -1``: further output is dropped.

A closed pipe is not an error and does not end a run.
"""

from __future__ import annotations

import os
import select
import sys
from typing import IO


def stand_in() -> None:
    """Open a substitute for standard output or standard error if the process lacks it, as after ``raysim run >&-``."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(_nowhere(), "w"))  # it stays as long as the process


def reader_has_gone(stream: IO[str]) -> bool:
    """Return whether a stream is a pipe that its reader has closed."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)
        return any(events & select.POLLERR for _, events in poll.poll(0))
    except (OSError, ValueError, AttributeError):  # it is not a file, or is closed
        return False


def silence(stream: IO[str]) -> None:
    """Drop the buffered and the further output of a stream."""
    nowhere = _nowhere()
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def silence_unread() -> bool:
    """Silence standard output and standard error if their readers have closed them; return whether one was silenced."""
    gone = [stream for stream in (sys.stdout, sys.stderr) if reader_has_gone(stream)]
    for stream in gone:
        silence(stream)
    return bool(gone)


def _nowhere() -> int:
    return os.open(os.devnull, os.O_WRONLY)
