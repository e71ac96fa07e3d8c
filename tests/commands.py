"""Commands of raysim as processes of their own, which need not import again what all of them import: forks."""

from __future__ import annotations

import atexit
import os
import re
import select
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.shared import asked

Environment = Mapping[str, str]

OUTPUTS = ("out", "err")
"""Files that take what a command writes to its standard streams."""


OF_MLFLOW = "The ``noload`` loader strategy is deprecated"
"""How a warning begins that MLflow causes in SQLAlchemy, and that is no error."""

STRICT = ("-W", "error", "-W", f"ignore:{OF_MLFLOW}")
"""Options of Python, with which a command that leaks another warning fails."""


PROGRESS = re.compile(
    r"reading data|starting Ray|drawing pictures"
    r"|\d+ hospitals?, (\d[\d,]* rows?, )?\d+ features?; .+"
    r"|look at .+: raysim describe says what is odd"
    r"|\d+/\d+ trials done, .+"
    r"|.+ resumes from round \d+ of \d+"
    r"|.+: round \d+/\d+(, .+)?"
    r"|\[\d+/\d+\] .+: \d+\.\d s, .+"
)
"""A line of how far a run, comparison or sweep is."""


def said(err: str) -> list[str]:
    """The lines of a command's stderr that are no progress."""
    return [line for line in err.splitlines() if not PROGRESS.fullmatch(line)]


def refusal(err: str) -> str:
    """The one line by which a command says why it ends, without ``raysim:``; only progress may come before it."""
    (line,) = said(err)
    assert line.startswith("raysim: ")
    assert err.endswith(f"{line}\n"), err
    return line.removeprefix("raysim: ")


class Done(NamedTuple):
    """What a command left: its exit code, and what it wrote to stdout and stderr."""

    code: int
    out: str
    err: str


class Running:
    """A command at work. It leads a session of its own, as under a terminal."""

    def __init__(self, function: Callable[..., None], arguments: Sequence[str], folder: Path, environment: Environment):
        self._outputs = tempfile.TemporaryDirectory()
        for name in OUTPUTS:
            Path(self._outputs.name, name).touch()
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        inherited["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # it is forked from one that has imported Ray
        call = (function, list(arguments), str(folder), inherited | {**environment}, self._outputs.name)
        self._answers = asked(_run, call)
        self._code: int | None = None
        self.pid = int(self._answers.readline())

    def ended(self) -> bool:
        """Whether it has."""
        return self._code is not None or bool(select.select([self._answers], [], [], 0)[0])

    def printed(self) -> str:
        """What it has written to stdout up to now."""
        return Path(self._outputs.name, "out").read_text()

    def wait(self) -> Done:
        """Until it has ended."""
        with self._answers:
            self._code = int(self._answers.readline())
        with self._outputs as folder:
            return Done(self._code, *(Path(folder, name).read_text() for name in OUTPUTS))


def raysim(arguments: Sequence[str], folder: Path, environment: Environment) -> Done:
    """``raysim`` with ``arguments``, run in ``folder``.

    ``environment`` comes to that of this process, of which nothing is left that is Ray's.
    """
    return started(arguments, folder, environment).wait()


def started(arguments: Sequence[str], folder: Path, environment: Environment) -> Running:
    """As :func:`raysim`, which is not waited for."""
    return Running(_command, ["raysim", *arguments], folder, environment)


def in_a_process(
    function: Callable[..., None], arguments: Sequence[str], folder: Path, environment: Environment
) -> Done:
    """As :func:`raysim`, of a ``function`` of some module with ``arguments``."""
    return Running(function, arguments, folder, environment).wait()


def _run(
    function: Callable[..., None], arguments: list[str], folder: str, environment: dict[str, str], outputs: str
) -> None:
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background lets its children ignore it
    for stream, name in enumerate(OUTPUTS, start=1):
        with Path(outputs, name).open("wb") as file:
            os.dup2(file.fileno(), stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path.insert(0, folder)  # as python -m has it
    # Those that libraries cause too: what users see in a terminal is raysim's.
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", message=re.escape(OF_MLFLOW))
    leaked = _warnings_where_nobody_catches()
    try:
        function(*arguments)
    finally:
        atexit._run_exitfuncs()  # which a process of multiprocessing leaves out
        if leaked:
            sys.exit("a warning was raised in a destructor or on a thread")


def _warnings_where_nobody_catches() -> list[type[BaseException]]:
    """What of them will have been raised in destructors and on threads, where Python only prints them."""
    leaked: list[type[BaseException]] = []
    destructor, thread = sys.unraisablehook, threading.excepthook

    def in_a_destructor(lost: sys.UnraisableHookArgs, /) -> None:
        leaked.extend([lost.exc_type] if issubclass(lost.exc_type, Warning) else [])
        destructor(lost)

    def on_a_thread(lost: threading.ExceptHookArgs, /) -> None:
        leaked.extend([lost.exc_type] if issubclass(lost.exc_type, Warning) else [])
        thread(lost)

    sys.unraisablehook, threading.excepthook = in_a_destructor, on_a_thread
    return leaked


def _command(*arguments: str) -> None:
    from raysim.cli.main import main

    sys.argv = list(arguments)
    main()
