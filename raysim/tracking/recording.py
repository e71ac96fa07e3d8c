"""Records the runs of an experiment while they execute, without slowing them down or depending on the store.

A thread imports MLflow, opens its store, and writes buffered rounds every few seconds. If the store cannot be reached,
runs continue, and raysim tries again. Unsent data can be sent later; see :class:`PendingRun`.

If the command fails or is stopped, the final status of its runs is set at once, so that they do not stay RUNNING in
MLflow.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

from raysim.config.schema import TrackingSection
from raysim.core import host
from raysim.engine.job import Round
from raysim.tracking.client import LOGGERS, RUN_TAG, Status, Tracker
from raysim.tracking.stores import NOWHERE, check_reachable

FLUSH_SECONDS = 5.0
"""Shortest time in seconds between two messages to MLflow about the rounds of a run in progress."""

WAITS = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds to wait after each failed attempt to reach the MLflow store; the last number is repeated."""

LOCKED = 2
"""Number of additional attempts to send at the end of a command. They are made only if the store is an SQLite file,
which another command may have locked."""

SETTINGS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
"""Environment variables for MLflow: no telemetry, and short retries, because long ones would delay the end of a
command.
"""

CLOSING_SECONDS = 60.0
"""Seconds that one call of MLflow may take at the end of a command."""

KILLED_SECONDS = 15.0
"""The limit in place of :data:`CLOSING_SECONDS` if the user has stopped the command."""


@dataclass(frozen=True)
class PendingRun:
    """A run that the MLflow store has not accepted completely, as plain values that can be sent later.

    - ``tags``: the run's tags.
    - ``parent``: the value of ``RUN_TAG`` of the parent run, if any.
    - ``rounds``: all rounds of the run; those already in the store are not written twice.
    - ``files``: the files to store with the run, by name; none for a run that failed.
    - ``status``, ``error``: how the run ended, and the error of a run that failed.
    """

    name: str
    params: Mapping[str, Any]
    tags: Mapping[str, str]
    parent: str | None
    rounds: Sequence[Round]
    summary: Mapping[str, float]
    files: Mapping[str, Path]
    note: str = ""
    status: Status = "FINISHED"
    error: str | None = None


def joined(threads: Sequence[threading.Thread], calls: Callable[[], int], seconds: float) -> bool:
    """Wait until ``threads`` have ended, but give up if no call of MLflow returns for ``seconds``.

    ``calls`` returns how many calls of MLflow have returned so far. Returns whether all threads have ended.
    """
    seen, until = calls(), time.monotonic() + seconds
    while (alive := [each for each in threads if each.is_alive()]) and time.monotonic() < until:
        alive[0].join(0.1)
        if (now := calls()) != seen:
            seen, until = now, time.monotonic() + seconds
    return not alive


class _LeftBehind(Exception):
    """Raised in the thread that calls MLflow, once the command no longer waits for this thread."""


class Sender:
    """A thread that calls MLflow. ``error`` is the message of the last call that failed; empty if none did."""

    def __init__(self, tracking: TrackingSection) -> None:
        self.error = ""
        self._tracking = tracking
        self._closing = threading.Event()
        self._ending = threading.Lock()
        self._calls = 0
        self._tracker: Tracker | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, which imports MLflow and opens its store."""
        if self._thread is None and self._tracking.uri != NOWHERE:
            self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        raise NotImplementedError

    def _end_all(self) -> None:
        raise NotImplementedError

    def _joined(self, error: BaseException | None, *, stopped: bool) -> bool:
        """Wait for the thread at the end of the context, and return whether it has ended.

        ``error`` is the exception that ended the context, if any. If ``stopped``, another thread sets the final status
        of all runs at once.
        """
        threads = [] if self._thread is None else [self._thread]
        if stopped and threads:
            threads.append(threading.Thread(target=self._end_all, name="mlflow ends", daemon=True))
            threads[-1].start()
        seconds = CLOSING_SECONDS if error is None or isinstance(error, Exception) else KILLED_SECONDS
        if joined(threads, lambda: self._calls, seconds):
            return True
        self.error = self.error or f"it did not answer within {seconds:g} s"
        return False

    def _failed(self, error: Exception) -> None:
        self.error = " ".join(f"{type(error).__name__}: {error}".split())[:200]

    def _opened(self) -> Tracker:
        if self._tracker is None:
            check_reachable(self._tracking.uri)  # MLflow itself would retry for minutes
            self._tracker = Tracker(self._tracking.uri, self._tracking.experiment, self._answered)
        return self._tracker

    def _answered(self) -> None:
        self._calls += 1


class Recorder(Sender):
    """Creates records of an experiment's runs for MLflow. A separate thread sends them in the order of the runs.

    When its context ends without an error, ``pending`` contains the runs that are not completely in MLflow.
    """

    def __init__(self, tracking: TrackingSection, verbose: bool = False) -> None:
        super().__init__(tracking)
        self.pending: list[PendingRun] = []
        self._verbose = verbose
        self._host = contextlib.ExitStack()
        self._news = threading.Condition()
        self._records: list[Record] = []
        self._stopped = self._left_behind = False

    def __enter__(self) -> Recorder:
        if self._tracking.uri != NOWHERE:
            self._host.enter_context(host.environment(SETTINGS, keep=True))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for record in self._records if error is not None else ():
            if record.status is None:  # interrupted while its context was entered or left
                record.__exit__(kind, error, at)
        self._stopped = error is not None
        self._closing.set()
        with self._news:
            self._news.notify()
        self._left_behind = not self._joined(error, stopped=self._stopped)
        self._host.close()
        if error is None and self._thread is not None:
            self.pending = [record.as_pending() for record in self._records if not record.over]

    def run(
        self,
        name: str,
        params: Mapping[str, Any],
        tags: Mapping[str, str],
        parent: Record | None = None,
        *,
        again: bool = False,
    ) -> Record:
        """Create the MLflow record of a run, nested in ``parent`` if given. The record is a context manager.

        With ``again``, an earlier record of the run is continued.
        """
        self.start()
        record = Record(self, name, params, tags, parent, doubtful=again)
        self._records.append(record)
        self.notify(record)
        return record

    def notify(self, record: Record) -> None:
        """Wake up the thread that sends data, because ``record`` has new data."""
        with self._news:
            record.news = True
            self._news.notify()

    def _work(self) -> None:
        import mlflow.tracking  # noqa: F401  # it sets the levels of its loggers when it is imported

        with contextlib.nullcontext() if self._verbose else host.quiet(*LOGGERS):
            tries = 0
            while (record := self._next()) is not None:
                try:
                    self._send(record)
                    tries = 0
                except Exception as error:
                    self._failed(error)
                    record.doubtful = True
                    self.notify(record)
                    if self._closing.is_set() and not (self._tracking.uri.startswith("sqlite:") and tries < LOCKED):
                        return  # no further attempts: the store is unreachable
                    (time.sleep if self._closing.is_set() else self._closing.wait)(WAITS[min(tries, len(WAITS) - 1)])
                    tries += 1
                self._calls += 1

    def _next(self) -> Record | None:
        """Wait until some run has new data to send, and return the first such run.

        Returns None once the context has ended and nothing is left to send.
        """
        with self._news:
            while True:
                for record in self._records:
                    if record.news:
                        record.news = False
                        return record
                if self._closing.is_set():
                    return None
                self._news.wait()

    def _send(self, record: Record) -> None:
        """Send a run's new data to MLflow. After an error, another call sends what is missing."""
        tracker = self._opened()
        if record.run_id is None or record.doubtful:
            above = record.parent.run_id if record.parent is not None else None
            begin = tracker.go_on if record.doubtful else tracker.start
            record.doubtful = True
            record.run_id = begin(record.name, record.params, record.tags, above)
            record.sent = 0
            if self._stopped:  # this call has set it RUNNING
                self._end(record)
        record.doubtful = True
        status = record.status  # read before the rounds: an ended run gets no more rounds
        rounds = record.rounds[record.sent :]
        if status is not None:
            tracker.complete(
                record.run_id,
                record.summary,
                record.files,
                record.error,
                record.note,
                rounds,
                record.title,
                record.verdict,
            )
            with self._ending:
                tracker.end(record.run_id, status)
                record.over = True
        elif rounds:
            tracker.rounds(record.run_id, rounds)
        record.sent += len(rounds)
        record.doubtful = False

    def _answered(self) -> None:
        """Count one more call of MLflow that has returned.

        Raises :class:`_LeftBehind` if the command no longer waits for this thread; a later command may send the missing
        data.
        """
        super()._answered()
        if self._left_behind:
            raise _LeftBehind

    def _end_all(self) -> None:
        with contextlib.suppress(Exception):  # any error means that the store is unreachable
            for record in self._records:
                self._end(record)

    def _end(self, record: Record) -> None:
        with self._ending:
            if self._tracker is not None and record.run_id is not None and not record.over:
                self._tracker.end(record.run_id, "KILLED" if record.status in (None, "FINISHED") else record.status)


@dataclass(eq=False)
class Record:
    """The record of one run for MLflow. An exception in its context marks the run as failed or killed.

    The recorder sets ``run_id``, the run's id in MLflow; ``sent``, the number of rounds sent; ``doubtful``, whether
    MLflow may have more data than ``sent`` says; ``over``, whether all data have been sent.
    """

    recorder: Recorder
    name: str
    params: Mapping[str, Any]
    tags: Mapping[str, str]
    parent: Record | None
    doubtful: bool
    rounds: list[Round] = field(default_factory=list)
    summary: Mapping[str, float] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    note: str = ""
    title: str = ""
    verdict: Mapping[str, str] = field(default_factory=dict)
    status: Status | None = None
    error: str | None = None
    run_id: str | None = None
    sent: int = 0
    over: bool = False
    news: bool = False
    flushed: float = field(default_factory=time.monotonic)

    def __enter__(self) -> Record:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, Exception):
            self.error = f"{type(error).__name__}: {error}"
        self.status = "FINISHED" if error is None else "FAILED" if isinstance(error, Exception) else "KILLED"
        self.recorder.notify(self)

    def round(self, row: Round) -> None:
        """Record a round that has ended and been evaluated."""
        self.rounds.append(row)
        if time.monotonic() - self.flushed >= FLUSH_SECONDS:
            self.flushed = time.monotonic()
            self.recorder.notify(self)

    def done(
        self,
        summary: Mapping[str, float],
        files: Mapping[str, Path],
        note: str = "",
        title: str = "",
        verdict: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Record the end of the run: its final metrics, its files by name, and a note in Markdown.

        ``title`` is the run's new name, unless it is empty. ``verdict`` has tags with the conclusion.
        """
        self.summary, self.files, self.note, self.title, self.verdict = summary, files, note, title, verdict

    def as_pending(self) -> PendingRun:
        """Return the record as a :class:`PendingRun`, which can be sent later."""
        return PendingRun(
            name=self.title or self.name,
            params=self.params,
            tags={**self.tags, **self.verdict},
            parent=self.parent.tags[RUN_TAG] if self.parent is not None else None,
            rounds=tuple(self.rounds),
            summary=self.summary,
            files=self.files,
            note=self.note,
            status=self.status or "FINISHED",
            error=self.error,
        )


def send(runs: Iterable[PendingRun], tracking: TrackingSection) -> None:
    """Send stored runs to MLflow, with the status that they ended with.

    Raises ``ConfigError`` if the store cannot be reached, and MLflow's errors. After an error, the call
    may be repeated. A run must come after its parent.
    """
    check_reachable(tracking.uri)
    with host.environment(SETTINGS, keep=True):
        import mlflow.tracking  # noqa: F401  # it sets the levels of its loggers when it is imported

        with host.quiet(*LOGGERS):
            tracker = Tracker(tracking.uri, tracking.experiment)
            for each in runs:
                above = tracker.run_of(each.parent) if each.parent is not None else None
                run_id = tracker.go_on(each.name, each.params, each.tags, above)
                tracker.complete(
                    run_id, each.summary, each.files, each.error, each.note, each.rounds, each.name, each.tags
                )
                tracker.end(run_id, each.status)
