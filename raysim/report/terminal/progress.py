"""Progress of jobs: a live line with the remaining time, or plain lines if the output is not a terminal."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

from raysim.core.words import counted, some

if TYPE_CHECKING:
    from raysim.config.schema import Config
    from raysim.data.federation import Federation
    from raysim.engine.job import Round

PLAIN_SECONDS = 5.0
"""The shortest time in seconds between two lines of progress if the output is not a terminal."""

_ODD = 6  # the largest number of columns that a line names

UNSAID = "odd data and columns that may give the label away are not reported under privacy; raysim describe lists them"
"""The line that replaces warnings about the data if runs have a privacy guarantee."""


@contextlib.contextmanager
def phase(console: Console, text: str) -> Iterator[None]:
    """Show what the command is doing: as a live line in a terminal, otherwise as a permanent line."""
    if not console.is_terminal:
        say(console, text)
    with waiting(console, text):
        yield


@contextlib.contextmanager
def waiting(console: Console, text: str) -> Iterator[Callable[[str], None]]:
    """Show what the command is doing as a live line in a terminal; otherwise, print only its steps.

    Yields a function that shows a step: in a terminal after ``text``, otherwise as a separate line.
    """
    with console.status(Text(text)) if console.is_terminal else contextlib.nullcontext() as status:

        def far(step: str) -> None:
            if status is None:
                say(console, step)
            else:
                status.update(Text(f"{text}: {step}"))

        yield far


def say(console: Console, text: str) -> None:
    """Print a sentence: wrapped at words in a terminal, otherwise in one line."""
    console.print(text, soft_wrap=not console.is_terminal, highlight=False, markup=False)


def time_left(seconds: float, done: float, total: float) -> str:
    """Estimate the remaining time in words, from the ``seconds`` that ``done`` of ``total`` steps took.

    The text is empty if nothing or everything is done. In the first minute, it is also empty while less than 2 % are
    done.

    >>> time_left(60, 3, 9), time_left(20, 10, 2000), time_left(80, 10, 2000), time_left(1, 0, 9)
    ('about 2 min left', '', 'about 4 h 25 min left', '')
    """
    if not 0 < done < total or (seconds < 60 and done < 0.02 * total):
        return ""
    left = round(seconds * (total - done) / done)
    if left < 90:
        return f"about {left} s left"
    minutes = round(left / 60)
    return f"about {minutes} min left" if minutes < 60 else f"about {minutes // 60} h {minutes % 60:02d} min left"


def figure(value: float, digits: int) -> str:
    """Format a metric for a progress line.

    >>> figure(0.61237, 4), figure(float("nan"), 4)
    ('0.6124', 'undefined')
    """
    return "undefined" if math.isnan(value) else f"{value:.{digits}f}"


class _Left(ProgressColumn):
    """The column of the live line with the estimated remaining time of all runs together."""

    def render(self, task: Task) -> Text:
        return Text(time_left(task.elapsed or 0.0, task.completed, task.total or 0.0))


@dataclass
class _AtWork:
    """A run in progress: its number of rounds, and how many of them have ended."""

    rounds: int
    rounds_run: int = 0


class RunProgress:
    """Shows the progress of ``jobs`` runs, which have ``total`` rounds in all."""

    def __init__(self, console: Console, jobs: int, total: int) -> None:
        self._console = console
        self._total = total
        self._at_work: dict[str, _AtWork] = {}
        self._job = _AtWork(0)
        self._jobs = jobs
        self._done = 0
        self._all_rounds_run = 0.0
        self._began = time.monotonic()
        self._label = ""
        self._last_line = time.monotonic()
        self._live: Progress | None = None
        self._task: TaskID | None = None
        if console.is_terminal:
            self._live = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=10),
                MofNCompleteColumn(),
                TextColumn("rounds"),
                _Left(),
                TextColumn("{task.fields[note]}"),
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
        """Start the run ``label``; later calls of :meth:`round` and :meth:`end` are about it."""
        self._label = label
        self._job = self._at_work[label] = _AtWork(rounds)

    def resume(self, label: str) -> None:
        """Switch to the run ``label``, which has begun before; several runs may be executed concurrently."""
        self._label = label
        self._job = self._at_work.get(label, self._job)

    def round(self, row: Round) -> None:
        """Report that a round of the current run has ended."""
        from raysim.metrics.labels import reporting

        note = ""
        self._job.rounds_run += 1
        if row.metrics:
            last = list(row.metrics.values())[-1]
            kind = reporting(last)
            value = last[kind.headline]
            note = f"{kind.title} {figure(value, kind.decimals(value) + 1)}"
        if self._live is not None and self._task is not None:
            self._live.update(self._task, advance=1, description=self._label, note=note)
        elif time.monotonic() - self._last_line >= PLAIN_SECONDS:
            self._last_line = time.monotonic()
            line = f"{self._label}: round {row.round}/{self._job.rounds}"
            self._say(", ".join(filter(None, [line, note, self._left(self._all_rounds_run + self._running_rounds())])))

    def conclude(self) -> None:
        """Report that all runs have ended, and results are being written."""
        if self._live is not None and self._task is not None:
            self._live.update(self._task, description="drawing pictures", note="")
        else:
            self._say("drawing pictures")

    def end(self, seconds: float, note: str) -> None:
        """Report that the current run has ended, with a ``note`` on its result."""
        job = self._at_work.pop(self._label, self._job)
        self._done += 1
        # Rounds that were not run, because of early stopping or because there are none, count as done.
        self._all_rounds_run += max(job.rounds, job.rounds_run)
        if self._live is not None and self._task is not None:
            self._live.update(self._task, advance=max(0, job.rounds - job.rounds_run))
        if self._live is None:
            self._last_line = time.monotonic()
            left = self._left(self._all_rounds_run + self._running_rounds())
            line = f"[{self._done}/{self._jobs}] {self._label}: {seconds:.1f} s, {note}"
            self._say(f"{line}; {left}" if left else line)

    def _running_rounds(self) -> int:
        return sum(job.rounds_run for job in self._at_work.values())

    def _left(self, rounds: float) -> str:
        return time_left(time.monotonic() - self._began, rounds, self._total)

    def _say(self, line: str) -> None:
        say(self._console, line)


def size_in_words(federation: Federation, config: Config) -> str:
    """Return the numbers of hospitals, rows (if public) and features in words."""
    rows = [] if config.hides_sizes else [counted(int(federation.totals.sum()), "row")]
    return ", ".join([counted(len(federation.hospitals), "hospital"), *rows, counted(federation.X.shape[1], "feature")])


def data_warnings(federations: Iterable[Federation], private: bool) -> list[str]:
    """Return warnings about the data, each once.

    If ``private``, only :data:`UNSAID` is returned, because warnings are computed from all rows without noise.
    """
    if private:
        return [UNSAID]
    listed = list(federations)
    suspects = [each for federation in listed for each in (*federation.leaks.suspects, *federation.quality)]
    lines = [text for each in listed for text in each.warnings]
    lines += [each.text for each in suspects if each.level == "warn"]
    warnings = [f"warning: {text}" for text in dict.fromkeys(lines)]
    odd = [f"'{name}'" for name in dict.fromkeys(each.feature for each in suspects if each.level == "ask")]
    return [*warnings, f"look at {some(odd, _ODD)}: raysim describe says what is odd"] if odd else warnings
