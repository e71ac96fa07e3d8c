"""Commands of raysim as processes that are disturbed, forked from one that has imported what they need."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "mlflow.tracking",
        "pandas",
        "optuna",
        "ray",
        "ray.tune",
        "raysim.cli.main",
        "raysim.experiment.comparison",
        "raysim.experiment.runs",
        "raysim.report.pages.page",
        "raysim.tune.sweep",
        "scipy.stats",
        "sklearn.cluster",
        "torch",
    ]
)

END_SECONDS = 300.0
"""How long a disturbed command may take to end before it is taken to hang."""

PATIENCE = "SOAK_PATIENCE"
"""The variable that shortens how long a silent coordinator is waited for, in shares of the usual time."""


class Hangs(Exception):
    """A command did not end."""


@dataclass(frozen=True)
class Ended:
    """A command that has ended: exit code (negative: the signal), and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Everything."""
        return self.out + self.err

    @property
    def clear(self) -> bool:
        """Whether stderr ends with one line of raysim's, behind those of progress, and has no traceback."""
        lines = self.err.strip().splitlines()
        return bool(lines) and lines[-1].startswith("raysim: ") and "Traceback" not in self.err


class Driver:
    """``raysim`` with ``arguments`` in ``folder``, in a process group of its own; ``name`` is that of its output."""

    def __init__(self, arguments: Sequence[str], folder: Path, name: str, environment: Mapping[str, str]) -> None:
        self._outputs = [folder / f"{name}.{stream}" for stream in ("out", "err")]
        for path in self._outputs:
            path.touch()  # it may be read before the process has begun
        call = (["raysim", *arguments], str(folder), dict(environment), *map(str, self._outputs))
        self._process: Any = FORKS.Process(target=_play, args=call)
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return bool(self._process.is_alive())

    def family(self) -> list[psutil.Process]:
        """Its processes."""
        with contextlib.suppress(psutil.Error):
            return psutil.Process(self.pid).children(recursive=True)
        return []

    def end(self, seconds: float = END_SECONDS) -> Ended:
        """How it ended. Raises :class:`Hangs` where it does not, after killing it."""
        self._process.join(seconds)
        if self._process.is_alive():
            family = self.family()
            self._process.kill()
            for each in family:
                with contextlib.suppress(psutil.Error):
                    each.kill()
            self._process.join()
            raise Hangs(f"it had not ended after {seconds:g} s: {self._outputs[1].read_text()[-300:]}")
        out, err = (path.read_text(errors="replace") for path in self._outputs)
        return Ended(self._process.exitcode, out, err)

    def said(self) -> str:
        """What it has written so far."""
        return " ".join(path.read_text(errors="replace") for path in self._outputs)


def command(arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Ended:
    """A command that nobody disturbs."""
    return Driver(arguments, folder, arguments[0], environment).end()


def _play(arguments: list[str], folder: str, environment: dict[str, str], *outputs: str) -> None:
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a soak in the background may have been told to ignore it
    for stream, output in enumerate(outputs, start=1):
        with open(output, "wb") as file:
            os.dup2(file.fileno(), stream)
    os.chdir(folder)
    os.environ.update(environment)
    from raysim.experiment import session

    if patience := environment.get(PATIENCE):
        session.SILENCE *= float(patience)
        session.RESTARTS = 30  # on a busy machine some are silent by themselves
    from raysim.cli.main import main

    sys.argv = list(arguments)
    main()


def name_of(process: psutil.Process) -> str:
    """A process's title, or nothing once it has ended."""
    try:
        return " ".join(process.cmdline()) if process.status() != psutil.STATUS_ZOMBIE else ""
    except psutil.Error:
        return ""


def shell(line: str) -> None:
    """Run a line. Raises ``RuntimeError`` with what it said where it fails."""
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{line}\n{done.stderr}")


def wait_for(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """What ``condition`` gives once it gives something. Raises ``TimeoutError``."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what} after {seconds:g} s")
        time.sleep(0.02)
    return result
