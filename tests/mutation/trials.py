"""Tests against a copy of the tree, each trial in a process forked from one that has imported what is heavy.

Neither the working tree nor this process ever runs a mutant. Time limits are in seconds of the processor, so that a
busy machine kills no mutant; a limit in real time, far above, ends what waits for ever.
"""

from __future__ import annotations

import contextlib
import inspect
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.mutation.rooms import ROOT

HEAVY = [
    "hypothesis.extra.numpy",
    "numpy",
    "pandas",
    "pydantic",
    "pytest",
    "ray",
    "scipy.cluster.hierarchy",
    "scipy.optimize",
    "scipy.spatial.distance",
    "sklearn.cluster",
    "sklearn.mixture",
    "sklearn.metrics",
    "torch",
]
"""What all trials import and no mutant changes."""

FORKS = multiprocessing.get_context("forkserver")

FACTOR, SPARE = 5.0, 20.0
"""A trial may take so many times the processor's seconds that its tests took without a mutation, and so many more."""

NOTHING_RUN = 5
"""The exit code of pytest where it selected no test."""

PATIENCE = 20.0
"""How much more real time than processor time it may take."""


@dataclass
class MeasuredTest:
    """A test as measured without mutations: the processor's seconds, and the lines that it runs by module.

    ``outcome``: passed, failed or skipped.
    """

    name: str
    seconds: float = 0.0
    outcome: str = "failed"
    lines: dict[str, set[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Measured:
    """The tests of a file, and the digests of the ``sources`` that they read, by their path from the root."""

    tests: list[MeasuredTest]
    sources: dict[str, str]


@dataclass(frozen=True)
class Trial:
    """What came of running tests: the first test that failed, None if all passed; ``ended`` unless time was up."""

    failed: str | None
    ended: bool = True


class Copy:
    """A copy of the working tree in ``folder``, in which modules can be overwritten and tests run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
        metadata = [str(path.relative_to(ROOT)) for path in ROOT.glob("*.egg-info/*")]  # where plug-ins are listed
        for name in filter(None, [*names, *metadata]):
            if (ROOT / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)

    def measured(self, file: str, modules: Sequence[str]) -> Measured:
        """The tests of a file, run without a mutation, with the lines of ``modules`` that each ran."""
        measured = self._run(_measure, (file, tuple(modules)), None)
        if measured is None:
            raise RuntimeError(f"{file}: its tests ended the process that ran them")
        tests, read = measured
        return Measured([MeasuredTest(*test) for test in tests], digests(read, self.folder))

    def tried(self, module: str, source: str, tests: Sequence[MeasuredTest]) -> Trial:
        """What ``tests`` say of a module whose text is ``source``, until the first fails; the fastest come first."""
        compile(source, module, "exec")  # a mutant that cannot be read would pass for killed
        path = self.folder / module
        text = path.read_text()
        # Bytecode is distinguished from its source by its time and its size, which a mutant can share.
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()
        try:
            path.write_text(source)
            limit = SPARE + FACTOR * sum(test.seconds for test in tests)
            failed = self._run(_try, (_in_order(tests), limit), PATIENCE * limit)
        finally:
            path.write_text(text)
        return Trial(None, ended=False) if failed is None else Trial(failed[0] if failed else None)

    def _run(self, work: Callable[..., Any], arguments: tuple[Any, ...], limit: float | None) -> Any:
        """What ``work`` returns in a process of its own; None where that ends, or is ended, without a word.

        Raises ``RuntimeError`` with the traceback of what ``work`` raises: an error of this tool, and no verdict.
        """
        receive, send = FORKS.Pipe(duplex=False)
        process = FORKS.Process(target=_work, args=(str(self.folder), send, work.__name__, arguments))
        process.start()
        send.close()
        try:
            result, error = receive.recv() if receive.poll(limit) else (None, None)
            if error is not None:
                raise RuntimeError(error)
            return result
        except EOFError:
            return None
        finally:
            if process.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.join()


def digests(names: Iterable[str], root: Path) -> dict[str, str]:
    """The digest of each file by its path from ``root``, empty where there is none."""
    paths = {name: root / name for name in sorted(names)}
    return {name: sha256(path.read_bytes()).hexdigest() if path.is_file() else "" for name, path in paths.items()}


def _in_order(tests: Sequence[MeasuredTest]) -> list[tuple[str, list[str]]]:
    """The tests by file, the fastest file first, and in a file the fastest test: what kills a mutant soonest."""
    by_file: dict[str, list[MeasuredTest]] = {}
    for test in sorted(tests, key=lambda test: test.seconds):
        by_file.setdefault(test.name.split("::")[0], []).append(test)
    ordered = sorted(by_file.items(), key=lambda item: sum(test.seconds for test in item[1]))
    return [(file, [test.name for test in of_file]) for file, of_file in ordered]


def _work(folder: str, send: Connection, work: str, arguments: tuple[Any, ...]) -> None:
    """Send what a function of this module returns, or the traceback of what it raises."""
    try:
        _enter(folder)
        send.send((globals()[work](*arguments), None))
    except Exception:
        send.send((None, traceback.format_exc()))


def _enter(folder: str) -> None:
    """Make this process one that runs the tree in ``folder`` and prints nothing."""
    os.setsid()
    os.chdir(folder)
    sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = folder  # for the processes that tests start
    for name in [name for name in sys.modules if name.split(".")[0] in ("raysim", "tests")]:
        del sys.modules[name]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)


def _pytest(arguments: Sequence[str], plugin: object) -> int:
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    import pytest

    return int(pytest.main(["-o", "addopts=", "-p", "no:cacheprovider", "-q", *arguments], plugins=[plugin]))


def _try(names: Sequence[tuple[str, Sequence[str]]], limit: float) -> list[str]:
    """Which test failed first, of those named by file; ``pytest`` where it could not even begin."""
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit)))
    for file, of_file in names:
        chosen = _Chosen(of_file)
        code = _pytest(["-x", file], chosen)
        if code == NOTHING_RUN:
            raise RuntimeError(f"none of these tests is there: {', '.join(of_file)}")
        if code:
            return chosen.failed or ["pytest"]
    return []


class _Chosen:
    """A plug-in that runs the tests called ``names`` alone, in their order file by file, and notes which failed."""

    def __init__(self, names: Sequence[str]) -> None:
        self._order = {name: i for i, name in enumerate(names)}
        self.failed: list[str] = []

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._order), key=lambda item: self._order[item.nodeid]
        )

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def _measure(file: str, modules: Sequence[str]) -> tuple[list[tuple[str, float, str, dict[str, set[int]]]], list[str]]:
    """The tests of a file, and the files of the tree that they read."""
    recorder, folder, opened = _Recorder(Path.cwd(), frozenset(modules)), Path.cwd(), {file}

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str):
            opened.add(arguments[0])

    sys.addaudithook(note)
    _pytest([file], recorder)
    import raysim

    if not Path(raysim.__file__).is_relative_to(folder):
        raise RuntimeError(f"the tests ran {raysim.__file__}, not the copy in {folder}")
    # A module that is read from its bytecode opens no source.
    opened |= {module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None)}
    paths = {Path(os.path.realpath(folder / name)) for name in opened}
    paths = {p.relative_to(folder) for p in paths if p.is_relative_to(folder) and p.is_file()}
    read = [path for path in paths if "__pycache__" not in path.parts]  # Python's bytecode
    tests = [(test.name, test.seconds, test.outcome, test.lines) for test in recorder.tests.values()]
    return tests, sorted(path.as_posix() for path in read)


class _Recorder:
    """A plug-in that notes of each test how long it takes and which lines of ``modules`` it runs."""

    def __init__(self, folder: Path, modules: frozenset[str]) -> None:
        self._folder, self._modules = folder, modules
        self._names: dict[CodeType, str | None] = {}
        self.tests: dict[str, MeasuredTest] = {}
        self._running: MeasuredTest | None = None

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running = self.tests[nodeid] = MeasuredTest(nodeid, -time.process_time())
        threading.settrace(self._called)
        sys.settrace(self._called)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.skipped:
            self.tests[report.nodeid].outcome = report.outcome

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        sys.settrace(None)
        threading.settrace(None)
        self.tests[nodeid].seconds += time.process_time()
        self._running = None

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if not code.co_flags & inspect.CO_OPTIMIZED:
            return None  # a module or a class that is imported just now: what follows from it is any test's matter
        if code not in self._names:
            path = os.path.realpath(code.co_filename)
            module = os.path.relpath(path, self._folder) if path.startswith(f"{self._folder}/") else None
            self._names[code] = module if module in self._modules else None
        module = self._names[code]
        if module is None or self._running is None:
            return None
        lines = self._running.lines.setdefault(module, set())

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            lines.add(frame.f_lineno)
            return line

        lines.add(frame.f_lineno)
        return line
