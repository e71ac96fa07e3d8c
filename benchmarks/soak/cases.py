"""A command that is struck by one fault after another: its folder, the moments in mid-run, its ends, how it goes on."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import yaml

from benchmarks.soak import drivers, paced
from benchmarks.soak.drivers import Driver, Ended, Hangs, name_of, wait_for
from benchmarks.soak.places import ACTORS, StandingRay
from benchmarks.soak.stores import Server
from benchmarks.soak.subjects import EVERY, PACE, ROUNDS, Subject, difference

BEGIN_SECONDS = 180.0
"""How long a command may take until it stops for the next fault."""

LEAVE_SECONDS = 60.0
"""How long the actors of a command that has ended may take to end."""

AGENT_SECONDS = 100.0
"""Agents of a Ray whose head was killed try for a minute to tell it."""

JOURNAL_SECONDS = 3.0
"""How long a trial may take to be in the journal, before another one of a sweep that has none there is let pass."""

PATIENCE = 0.1
"""Of the usual patience with silent coordinators and trials, in commands in which some are stopped: twenty seconds."""

LOST = "the coordinator was lost"
"""What a command says that has started a new one."""


class Wrong(Exception):
    """The end was not right; the message says what was not."""


class Missed(Exception):
    """The command has ended before the fault, or was not touched by it, which does not count."""


@dataclass
class Stage:
    """What all cases share: a ``folder`` with undisturbed results, and the Ray that stands, if one does.

    ``missed`` counts faults that touched nothing, by name and command.
    """

    folder: Path
    rng: np.random.Generator
    standing: StandingRay | None = None
    count: int = 0
    missed: Counter[tuple[str, str]] = field(default_factory=Counter)
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


@dataclass
class Case:
    """A command in a folder of its own, ``place`` being where it runs; ``server`` records it.

    ``patience``: whether it loses patience soon. ``disk``: whether its folder is a small disk of its own.
    """

    stage: Stage
    subject: Subject
    place: str
    server: Server | None = None
    patience: bool = False
    disk: bool = False

    def __post_init__(self) -> None:
        self.stage.count += 1
        self.number = self.stage.count
        self.folder = self.stage.folder / f"case-{self.number}"
        self.gate = self.folder / "gate"
        self.experiment = f"case-{self.number}"
        self.driver: Driver | None = None
        self.commands, self._passed = 0, 0.0
        self.struck: list[dict[str, Any]] = []
        self.says = Counter[str]()
        tracking = {"tracking": {"uri": self.server.uri, "experiment": self.experiment}} if self.server else {}
        self.stage.lay_out(self.folder, self.subject, **tracking)
        self.small = self.folder / "disk"
        if self.disk:
            self.small.mkdir()
            drivers.shell(f"mount -t tmpfs -o size=16M none {self.small}")
        self.out = (self.small if self.disk else self.folder) / "out"

    def begin(self) -> None:
        """Start the command."""
        self._start([self.subject.command, "c.yaml", "--out", os.path.relpath(self.out, self.folder)])

    def go_on(self, *options: str) -> None:
        """Let the command go on that was stopped."""
        if self.server is not None:
            self.server.start()
        self._start(["resume", os.path.relpath(self.out, self.folder), *options])

    def mid_run(self) -> None:
        """Come back when a process of the command waits at the gate and something is finished on disk.

        Raises :class:`Missed` where the command ends before, and ``TimeoutError``.
        """
        limit = time.monotonic() + BEGIN_SECONDS
        while True:
            waiting = self._waiting()
            if waiting and self.subject.begun(self.out):
                self.at = max(waiting.values())
                return
            assert self.driver is not None
            if not self.driver.alive:
                raise Missed
            if waiting and self.subject.command == "sweep" and time.monotonic() > self._passed + JOURNAL_SECONDS:
                self.let_pass()
            if time.monotonic() > limit:
                raise TimeoutError(f"nothing to strike after {BEGIN_SECONDS:g} s: {self.driver.said()[-300:]}")
            time.sleep(0.03)

    @contextmanager
    def strike(self, fault: str, *, ends: bool = False) -> Iterator[Driver]:
        """What happens meanwhile is the fault; ``ends``: no more faults before the command ends.

        It strikes while a run waits, or at a random moment before it waits again.
        """
        driver = self.driver
        assert driver is not None
        moving = self.subject.command != "sweep" and self.at + EVERY <= ROUNDS and self.stage.rng.random() < 0.5
        if moving:
            self.let_pass()
            time.sleep(float(self.stage.rng.uniform(0, 4 * EVERY * PACE)))
        if not driver.alive or self.subject.ended(self.out):
            raise Missed
        self.struck.append({"fault": fault, "round": self._round(), "moving": moving})
        if self.place == "own Ray":
            self.stage.families.append((time.monotonic(), driver.family()))
        try:
            yield driver
        finally:
            if ends:
                self.open()
            elif not moving:
                self.let_pass()

    def let_pass(self) -> None:
        """Let one run pass once."""
        self._passed = time.monotonic()
        (self.gate / f"{paced.PASS}{time.monotonic_ns()}").touch()

    def open(self) -> None:
        """Let runs pass."""
        (self.gate / paced.OPEN).touch()

    def workers(self) -> list[psutil.Process]:
        """Ray's worker processes that work for this command."""
        assert self.driver is not None
        if self.place == "own Ray":
            return [each for each in self.driver.family() if name_of(each).startswith("ray::")]
        assert self.stage.standing is not None
        return self.stage.standing.workers()

    def process(self, *parts: str) -> psutil.Process:
        """One of its processes whose title has one of ``parts``, at random."""
        named = wait_for(lambda: self._named(parts), BEGIN_SECONDS, f"there is no process {' or '.join(parts)}")
        victim: psutil.Process = named[int(self.stage.rng.integers(len(named)))]
        return victim

    def _named(self, parts: tuple[str, ...]) -> list[psutil.Process]:
        """Those there are; one that has just died is started again."""
        assert self.driver is not None
        there = {each: name_of(each) for each in (*self.workers(), *self.driver.family())}
        return [each for each, title in there.items() if any(part in title for part in parts)]

    def end(self) -> Ended:
        """How the command ended; all of its actors must be gone then, and it must have said what it should."""
        assert self.driver is not None
        ended = self.driver.end()
        if self.place != "in process":
            wait_for(lambda: not self._actors(), LEAVE_SECONDS, "actors of a command that has ended are left")
        if ended.code != -9:  # which may have left it unwritten
            for text, times in self.says.items():
                self.expect(ended.said.count(text) >= times, f"it did not say '{text}' {times} times", ended)
        self.says.clear()
        return ended

    def expect(self, truth: object, what: str, ended: Ended) -> None:
        """Raise :class:`Wrong` unless it is so."""
        if not truth:
            raise Wrong(f"{what}; it ended with {ended.code}: {ended.said[-600:]}")

    def stores(self, *states: str) -> None:
        """Raise :class:`Wrong` unless all runs in MLflow, where it can be reached, are in one of these states."""
        if self.server is None or not self.server.up:
            return
        there = self.server.states(self.experiment)
        if not set(there) <= set(states):
            raise Wrong(f"runs in MLflow are {there}, and {' or '.join(states)} was due")

    def conclude(self) -> None:
        """Let the command end, send what is unsent, and compare. Raises :class:`Wrong`, ``Hangs``, ``TimeoutError``."""
        self.open()
        ended = self.end()
        self.expect(ended.code == 0, "it did not end well", ended)
        if self.server is not None:
            if (self.out / "unsent.json").exists() or "did not accept" in ended.said:
                self.expect("did not accept" in ended.said, "it did not say what is unsent", ended)
                self.go_on()
                self.open()
                ended = self.end()
                self.expect(ended.code == 0, "what was unsent was not sent", ended)
            self.server.start()
            self.stores("FINISHED")
        if differs := difference(self.stage.whole(self.subject), self.out):
            raise Wrong(differs)

    def remove(self, *, keep: bool) -> None:
        """End what is left of it."""
        if self.driver is not None and self.driver.alive:
            self.open()
            with contextlib.suppress(Hangs):
                self.driver.end(5.0)
        if self.disk:
            drivers.shell(f"umount --lazy {self.small}")
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, arguments: list[str]) -> None:
        for old in (*self.gate.glob(f"{paced.PASS}*"), *self.gate.glob(f"{paced.TAKEN}*"), self.gate / paced.OPEN):
            old.unlink(missing_ok=True)
        arguments += ["--in-process"] if self.place == "in process" else []
        environment = self.stage.environment(self.place) | {drivers.PATIENCE: str(PATIENCE) if self.patience else ""}
        self.commands += 1
        self.driver = Driver(arguments, self.folder, f"{self.commands}-{arguments[0]}", environment)

    def _actors(self) -> list[psutil.Process]:
        """Processes of actors that are there of the command, which has ended."""
        if self.place == "own Ray":
            last = self.stage.families[-1][1] if self.stage.families else []
            return [each for each in last if any(actor in name_of(each) for actor in ACTORS)]
        assert self.stage.standing is not None
        return self.stage.standing.workers()

    def _waiting(self) -> dict[int, int]:
        """The rounds in which processes wait that no pass is under way to, by process."""
        if any(self.gate.glob(f"{paced.PASS}*")) or self._rounds(paced.TAKEN):
            return {}
        return self._rounds(paced.WAITING)

    def _rounds(self, prefix: str) -> dict[int, int]:
        """What files say whose names end with the id of a process that runs."""
        result = {}
        for path in self.gate.glob(f"{prefix}*"):
            with contextlib.suppress(OSError, ValueError, psutil.Error):
                pid = int(path.name.removeprefix(prefix))
                if psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED):
                    result[pid] = int(path.read_text() or 0)
        return result

    def _round(self) -> int:
        """The round that was reached last."""
        paths = sorted(self.gate.glob(f"{paced.ROUND}*"), key=lambda path: path.stat().st_mtime)
        numbers = [int(text) for path in paths if (text := path.read_text())]  # one is empty while it is written
        return numbers[-1] if numbers else self.at
