"""Records the runs of an experiment while they go on, without slowing them down.

MLflow takes seconds to import and to open its store: that happens in a thread while Ray starts. Rounds are buffered and
written at most once a second.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from raysim.config.schema import TrackingSection
from raysim.core import host
from raysim.core.errors import ResourceError
from raysim.engine.job import Round
from raysim.tracking.client import LOGGERS, NOWHERE, Tracker

FLUSH_SECONDS = 1.0


class Recorder:
    """Hands out records of runs; a tracker's work happens on one thread of its own, in order."""

    def __init__(self, tracking: TrackingSection, verbose: bool = False) -> None:
        self._uri = tracking.uri
        self._quiet = contextlib.ExitStack()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mlflow")
        self._tracker: Future[Tracker] | None = None
        if tracking.uri != NOWHERE:
            self._tracker = self._thread.submit(self._open, tracking, verbose)
        self._pending: list[Future[Any]] = []

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._thread.shutdown(wait=True)
        self._quiet.close()
        if error is None:
            try:
                for done in self._pending:
                    done.result()
            except Exception as failure:
                text = next(iter(str(failure).strip().splitlines()), "")
                raise ResourceError(
                    f"tracking.uri: {self._uri} failed ({type(failure).__name__}: {text}); mend it or set another"
                ) from failure

    def _open(self, tracking: TrackingSection, verbose: bool) -> Tracker:
        if not verbose:
            import mlflow.tracking  # noqa: F401  # it sets the levels of its loggers when it is imported

            self._quiet.enter_context(host.quiet(*LOGGERS))
        return Tracker(tracking.uri, tracking.experiment)

    def run(
        self,
        name: str,
        params: Mapping[str, Any],
        tags: Mapping[str, str],
        parent: Record | None = None,
        *,
        again: bool = False,
    ) -> Record:
        """A run, nested in ``parent`` where given; use it as a context. ``again``: one that goes on, if it is known."""
        return Record(self, name, params, tags, parent, again)

    def do(self, work: Any) -> Future[Any] | None:
        """Call ``work(tracker)`` on the tracker's thread; None where nothing is recorded."""
        if self._tracker is None:
            return None
        tracker = self._tracker
        done = self._thread.submit(lambda: work(tracker.result()))
        self._pending.append(done)
        return done


class Record:
    """One MLflow run. An exception that leaves its context marks it failed, with the error."""

    def __init__(
        self,
        recorder: Recorder,
        name: str,
        params: Mapping[str, Any],
        tags: Mapping[str, str],
        parent: Record | None,
        again: bool,
    ) -> None:
        self._recorder = recorder
        self._rounds: list[Round] = []
        self._flushed = time.monotonic()
        self._summary: Mapping[str, float] = {}
        self._files: Mapping[str, Path] = {}
        above = parent.run_id if parent is not None else None
        self.run_id: Future[str] | None = recorder.do(
            lambda tracker: (tracker.go_on if again else tracker.start)(
                name, params, tags, above.result() if above is not None else None
            )
        )

    def __enter__(self) -> Record:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._flush()
        text = None if error is None else f"{type(error).__name__}: {error}"
        summary, files = self._summary, self._files
        self._do(lambda tracker, run_id: tracker.finish(run_id, summary, files, text))

    def round(self, row: Round) -> None:
        """A round has ended and been evaluated."""
        self._rounds.append(row)
        if time.monotonic() - self._flushed >= FLUSH_SECONDS:
            self._flush()

    def done(self, summary: Mapping[str, float], files: Mapping[str, Path]) -> None:
        """The run's final figures, and the files to keep with it by name."""
        self._summary, self._files = summary, files

    def _flush(self) -> None:
        rows, self._rounds, self._flushed = self._rounds, [], time.monotonic()
        if rows:
            self._do(lambda tracker, run_id: tracker.rounds(run_id, rows))

    def _do(self, work: Any) -> None:
        run = self.run_id
        if run is not None:
            self._recorder.do(lambda tracker: work(tracker, run.result()))
