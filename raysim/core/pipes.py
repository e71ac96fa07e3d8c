"""Standard streams whose reader has gone, as of ``raysim list strategies | head -1``: what is written then is dropped.

A closed pipe is no mistake of the user, and no reason to end a run.
"""

from __future__ import annotations

import os
import select
import sys
from typing import IO


def stand_in() -> None:
    """Give the process the standard streams that it was started without, as ``raysim run >&-`` does."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(_nowhere(), "w"))  # it stays as long as the process


def reader_has_gone(stream: IO[str]) -> bool:
    """Whether a stream is a pipe that nobody reads any more."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)
        return any(events & select.POLLERR for _, events in poll.poll(0))
    except (OSError, ValueError, AttributeError):  # it is no file, or is closed
        return False


def silence(stream: IO[str]) -> None:
    """Drop what is written to a stream from now on, and what it still holds."""
    nowhere = _nowhere()
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def silence_unread() -> bool:
    """Silence standard output and standard error where their reader has gone; returns whether one had."""
    gone = [stream for stream in (sys.stdout, sys.stderr) if reader_has_gone(stream)]
    for stream in gone:
        silence(stream)
    return bool(gone)


def _nowhere() -> int:
    """A descriptor that drops what is written to it."""
    return os.open(os.devnull, os.O_WRONLY)
