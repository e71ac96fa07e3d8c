"""The progress of a running sweep: a live table, or plain lines if the output is not a terminal."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table

from raysim.report.terminal.progress import say, time_left
from raysim.tune.journal import Finished
from raysim.tune.settings import Sweep

PLAIN_SECONDS = 5.0
"""The smallest number of seconds between two lines of progress if the output is not a terminal."""


class SweepProgress:
    """The display of a sweep's progress. ``total`` is the number of trials; those in ``finished`` ended in earlier
    commands."""

    def __init__(self, console: Console, sweep: Sweep, total: int, finished: Iterable[Finished]) -> None:
        self._console = console
        self._sweep = sweep
        self._total = total
        self._running: set[int] = set()
        self._counts = {"completed": 0, "stopped": 0, "failed": 0}
        self._best: dict[str, tuple[float, int]] = {}
        self._began = self._last_line = time.monotonic()
        self._here = 0
        for trial in finished:
            self._count(trial)
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None

    def __enter__(self) -> SweepProgress:
        if self._live is not None:
            self._live.start()
            self._live.update(self._table())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
        else:
            say(self._console, self._line())

    def started(self, number: int) -> None:
        """Show that trial ``number`` has started."""
        self._running.add(number)
        self._show()

    def finished(self, trial: Finished) -> None:
        """Show that ``trial`` has ended."""
        self._here += 1
        self._running.discard(trial.number)
        self._count(trial)
        if trial.status == "failed":
            say(self._console, f"trial {trial.number} failed: {trial.error}")
        self._show()

    def _count(self, trial: Finished) -> None:
        self._counts[trial.status] += 1
        if trial.status != "completed":
            return
        means = trial.means()
        for name, larger in zip(self._sweep.names, self._sweep.larger, strict=True):
            value = means.get(name, math.nan)
            best = self._best.get(name)
            if math.isfinite(value) and (best is None or (value > best[0] if larger else value < best[0])):
                self._best[name] = (value, trial.number)

    def _show(self) -> None:
        if self._live is not None:
            self._live.update(self._table())
        elif time.monotonic() - self._last_line >= PLAIN_SECONDS:
            self._last_line = time.monotonic()
            say(self._console, self._line())

    @property
    def _done(self) -> int:
        return sum(self._counts.values())

    def _state(self) -> str:
        parts = [f"{self._done}/{self._total} trials done", f"{len(self._running)} running"]
        parts += [f"{self._counts[name]} {name}" for name in ("stopped", "failed") if self._counts[name]]
        left = self._total - self._done
        parts.append(time_left(time.monotonic() - self._began, self._here, self._here + left))
        return ", ".join(part for part in parts if part)

    def _line(self) -> str:
        best = ", ".join(f"{name} {value:.4f} (trial {number})" for name, (value, number) in self._best.items())
        return self._state() + (f"; best {best}" if best else "")

    def _table(self) -> Table:
        table = Table(title=self._state(), title_justify="left")
        table.add_column("objective")
        table.add_column("best so far", justify="right")
        table.add_column("trial", justify="right")
        for name, direction in self._sweep.objectives.items():
            value, number = self._best.get(name, (math.nan, 0))
            table.add_row(f"{name} ({direction})", f"{value:.4f}" if number else "", str(number) if number else "")
        return table
