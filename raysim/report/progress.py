"""What a user sees while jobs run: a live line with the time left, or plain lines where there is no terminal."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from raysim.engine.job import Round
from raysim.metrics.labels import reporting

PLAIN_SECONDS = 5.0
"""Plain lines come no more often than this."""


class RunProgress:
    """Shows ``jobs`` jobs of ``total`` rounds together on ``console``."""

    def __init__(self, console: Console, jobs: int, total: int) -> None:
        self._console = console
        self._total = total
        self._rounds = 0
        self._played = 0
        self._jobs = jobs
        self._done = 0
        self._label = ""
        self._said = time.monotonic()
        self._live: Progress | None = None
        self._task: TaskID | None = None
        if console.is_terminal:
            self._live = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=16),
                MofNCompleteColumn(),
                TextColumn("rounds,"),
                TimeRemainingColumn(),
                TextColumn("left {task.fields[note]}"),
                console=console,
                transient=True,
            )

    def __enter__(self) -> RunProgress:
        if self._live is not None:
            self._live.start()
            self._task = self._live.add_task("", total=self._total, note="")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, label: str, rounds: int) -> None:
        """A job of so many rounds starts."""
        self._label, self._rounds, self._played = label, rounds, 0

    def round(self, row: Round) -> None:
        """A round of the job has ended."""
        note = ""
        self._played += 1
        if row.metrics:
            last = list(row.metrics.values())[-1]
            kind = reporting(last)
            value = last[kind.headline]
            note = f"{kind.title} {value:.{kind.decimals(value) + 1}f}"
        if self._live is not None and self._task is not None:
            self._live.update(self._task, advance=1, description=self._label, note=note)
        elif time.monotonic() - self._said >= PLAIN_SECONDS:
            self._said = time.monotonic()
            self._console.print(
                f"{self._label}: round {row.round}/{self._rounds} {note}", highlight=False, markup=False
            )

    def conclude(self) -> None:
        """All jobs have ended, and what they come to is written."""
        if self._live is not None and self._task is not None:
            self._live.update(self._task, description="tables, plots, page", note="")

    def end(self, seconds: float, note: str) -> None:
        """The job has ended."""
        self._done += 1
        if self._live is not None and self._task is not None:
            # A run that stopped early has no further rounds; one without rounds has told of none.
            self._live.update(self._task, advance=max(0, self._rounds - self._played))
        if self._live is None:
            self._said = time.monotonic()
            self._console.print(
                f"[{self._done}/{self._jobs}] {self._label}: {seconds:.1f} s, {note}", highlight=False, markup=False
            )
