"""One fault's command: its folder, its start, the moment in mid-run, its end, and how it goes on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import yaml

from benchmarks.soak import drivers, paced
from benchmarks.soak.drivers import Driver, Ended, name_of, wait_for
from benchmarks.soak.places import Standing
from benchmarks.soak.subjects import PACE, ROUNDS, Subject, difference

BEGIN_SECONDS = 180.0
"""How long a command may take until something of it is finished."""

LEAVE_SECONDS = 60.0
"""How long the actors of a command that has ended may take to end."""

AGENT_SECONDS = 100.0
"""Agents of a Ray whose head was killed try for a minute to tell it."""


class Wrong(Exception):
    """The end was not right; the message says what was not."""


class Missed(Exception):
    """The fault touched nothing of the command, which does not count."""


@dataclass
class Stage:
    """What all cases share: a ``folder`` with undisturbed results, and the Ray that stands, if one does."""

    folder: Path
    rng: np.random.Generator
    standing: Standing | None = None
    count: int = 0
    families: list[tuple[float, list[psutil.Process]]] = field(default_factory=list)

    def environment(self, place: str) -> dict[str, str]:
        """Variables of a command's process."""
        variables = {"RAYSIM_CACHE": str(self.folder / "cache")}
        return variables | (self.standing.environment if self.standing and place.endswith(("host", "hosts")) else {})

    def whole(self, subject: Subject) -> Path:
        """Where the undisturbed results of a command are."""
        return self.folder / f"whole-{subject.command}" / "out"

    def prepare(self, subject: Subject, place: str) -> None:
        """Make the undisturbed results."""
        folder = self.whole(subject).parent
        self.lay_out(folder, subject)
        (folder / "gate" / paced.OPEN).touch()
        arguments = [subject.command, "c.yaml", "--out", "out"]
        arguments += ["--in-process"] if subject.command != "sweep" else []
        ended = drivers.command(arguments, folder, self.environment(place))
        if ended.code:
            raise RuntimeError(f"the undisturbed {subject.command} ended with {ended.code}: {ended.said[-1000:]}")

    def lay_out(self, folder: Path, subject: Subject, **sections: Any) -> None:
        """A folder with the configuration, the strategies and a closed gate."""
        (folder / "gate").mkdir(parents=True)
        (folder / "paced.py").write_bytes(Path(paced.__file__).read_bytes())
        (folder / "c.yaml").write_text(yaml.safe_dump(subject.configured(folder / "gate", **sections)))


class Case:
    """A command that a fault strikes in mid-run, ``place`` being where it runs."""

    def __init__(self, stage: Stage, subject: Subject, place: str) -> None:
        self.stage, self.subject, self.place = stage, subject, place
        stage.count += 1
        self.folder = stage.folder / f"case-{stage.count}"
        self.out = self.folder / "out"
        # Of a sweep a trial is finished before the fault, and one is left after it.
        least = 1 if subject.command == "sweep" else 0
        self.passes = int(stage.rng.integers(least, subject.parts))
        self.driver: Driver | None = None

    @contextmanager
    def begun(self, out: Path | None = None, patience: str = "", **sections: Any) -> Iterator[Driver]:
        """Start the command and come back in mid-run; what happens meanwhile is the fault, and the gate opens after it.

        Raises :class:`Wrong` where it ends before the fault.
        """
        self.out = out or self.out
        self.stage.lay_out(self.folder, self.subject, **sections)
        for number in range(self.passes):
            (self.folder / "gate" / f"pass-{number}").touch()
        arguments = [self.subject.command, "c.yaml", "--out", os.path.relpath(self.out, self.folder)]
        arguments += ["--in-process"] if self.place == "in process" else []
        driver = self.driver = Driver(arguments, self.folder, self._environment() | {drivers.PATIENCE: patience})
        wait_for(
            lambda: not driver.alive or self.subject.begun(self.out, self.passes),
            BEGIN_SECONDS,
            "nothing of the command was finished",
        )
        time.sleep(float(self.stage.rng.uniform(0, ROUNDS * PACE)))
        if not driver.alive:
            raise Wrong(f"it ended before the fault: {driver.end()}")
        assert not self.subject.ended(self.out)
        if self.place == "own Ray":
            self.stage.families.append((time.monotonic(), driver.family()))
        try:
            yield driver
        finally:
            self.open()

    def open(self) -> None:
        """Let runs pass."""
        (self.folder / "gate" / paced.OPEN).touch()

    def workers(self) -> list[psutil.Process]:
        """Ray's worker processes that work for this command."""
        assert self.driver is not None
        if self.place == "own Ray":
            return [each for each in self.driver.family() if name_of(each).startswith("ray::")]
        assert self.stage.standing is not None
        return self.stage.standing.workers()

    def process(self, part: str) -> psutil.Process:
        """One of its processes whose title has ``part``, at random."""
        assert self.driver is not None
        named = [each for each in (*self.workers(), *self.driver.family()) if part in name_of(each)]
        if not named:
            raise Wrong(f"there is no process {part}")
        return named[int(self.stage.rng.integers(len(named)))]

    def end(self) -> Ended:
        """How the disturbed command ended; all of its actors must be gone then."""
        assert self.driver is not None
        ended = self.driver.end()
        if self.place.endswith(("host", "hosts")):
            assert self.stage.standing is not None
            gone: Callable[[], bool] = lambda: not self.stage.standing.workers()  # type: ignore[union-attr]  # noqa: E731
            wait_for(gone, LEAVE_SECONDS, "actors of a command that has ended are left")
        return ended

    def resumed(self, *options: str) -> Ended:
        """Let it go on, without Ray where that can be. Raises :class:`Wrong` where it does not end well."""
        without = ["--in-process"] if self.subject.command != "sweep" else []
        place = os.path.relpath(self.out, self.folder)
        ended = drivers.command(["resume", place, *without, *options], self.folder, self._environment())
        if ended.code:
            raise Wrong(f"resume ended with {ended.code}: {ended.said[-400:]}")
        return ended

    def expect(self, truth: object, what: str, ended: Ended) -> None:
        """Raise :class:`Wrong` unless it is so."""
        if not truth:
            raise Wrong(f"{what}; it ended with {ended.code}: {ended.said[-600:]}")

    def same(self) -> None:
        """Raise :class:`Wrong` unless the results are those of the undisturbed command."""
        if differs := difference(self.stage.whole(self.subject), self.out):
            raise Wrong(differs)

    def _environment(self) -> dict[str, str]:
        return self.stage.environment(self.place)
