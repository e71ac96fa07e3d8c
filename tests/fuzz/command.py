"""One command of raysim in this process, and what is wrong with its answer."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from raysim.cli import main as cli

SECONDS = 600
"""A case that takes longer hangs. A usual one takes less than one, so that a busy machine does not decide this."""

LONGEST = 2_200
"""Characters of a line on stderr."""


class Hangs(BaseException):
    """A case took too long."""


@dataclass(frozen=True)
class Answer:
    """How a command ended: its exit code (None: an exception left it), and what it wrote to stderr."""

    code: int | None
    err: str

    def fault(self, must_refuse: bool, ends: Sequence[int] = (0,)) -> str | None:
        """What is wrong with it, or None: it is an end with one of ``ends``, or with 2 and one line that says why."""
        if self.code in ends:
            return "accepted, though it cannot be meant" if must_refuse else None
        # Progress of what came before stands above; the error is one line, the last.
        *above, last = self.err.strip().splitlines() or [""]
        if self.code != 2:
            return f"exit code {self.code}: {self.err[-1500:]}"
        reported_before = any(line.startswith(("raysim: ", "Traceback", " ")) for line in above)
        if reported_before or not last.startswith("raysim: ") or len(last) > LONGEST:
            return f"not one line: {self.err[:1500]}"
        return None


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise :class:`Hangs` here after so long."""

    def late(number: int, frame: object) -> None:
        raise Hangs(f"longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def answer(arguments: Sequence[str], folder: Path, seconds: float = SECONDS) -> Answer:
    """The answer of ``raysim`` with ``arguments`` in ``folder``, which is to take no longer than so many seconds."""
    out, err, argv = io.StringIO(), io.StringIO(), sys.argv
    term, code = signal.getsignal(signal.SIGTERM), 0
    here = os.getcwd()
    try:
        os.chdir(folder)
        sys.argv = ["raysim", *arguments]
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
            limited(seconds),
        ):
            warnings.simplefilter("default")
            cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except (Exception, Hangs):
        return Answer(None, traceback.format_exc())
    finally:
        sys.argv = argv
        os.chdir(here)
        signal.signal(signal.SIGTERM, term)
    return Answer(code, err.getvalue())
