"""What the runs of one experiment share while it is played: MLflow, the standing hospitals, and the display."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from raysim.config.schema import Config
from raysim.core import host
from raysim.data.federation import Federation
from raysim.engine.job import Round
from raysim.experiment import unsent
from raysim.experiment.session import Session, open_session
from raysim.report.progress import RunProgress, phase
from raysim.storage import resume
from raysim.tracking.recording import Record, Recorder

STARTING = "starting Ray"
"""The phase in which hospitals come up."""


class RunServices:
    """What the runs of an experiment share while it is played."""

    session: Session
    recorder: Recorder
    display: RunProgress
    unsent: str | None = None

    def __init__(self, config: Config, federation: Federation, folder: Path, console: Console) -> None:
        """``federation`` is that of any of the seeds, which have the same hospitals."""
        self._config = config
        self._federation = federation
        self._folder = folder
        self._console = console

    @contextlib.contextmanager
    def ready(self, in_process: bool, verbose: bool, jobs: int, rounds: int, remarks: Sequence[str]) -> Iterator[None]:
        """Bring up MLflow, the hospitals and the display, of ``jobs`` with so many ``rounds`` in all.

        ``remarks`` are printed when they stand ready.
        """
        config, federation = self._config, self._federation
        with contextlib.ExitStack() as standing:
            self.recorder = standing.enter_context(Recorder(config.tracking, verbose))
            with contextlib.nullcontext() if in_process else phase(self._console, STARTING):
                opened = open_session(
                    federation.totals,
                    config.resources,
                    in_process=in_process,
                    verbose=verbose,
                    names=federation.hospitals,
                )
                self.session = standing.enter_context(opened)
            self._announce()
            for line in remarks:
                self.say(line)
            with RunProgress(self._console, jobs, rounds) as self.display:
                yield
        with resume.writing(self._folder):
            self.unsent = unsent.keep(self._folder, self.recorder, config.tracking.uri)

    def say(self, text: str) -> None:
        """A line for the user."""
        self._console.print(text, soft_wrap=True, highlight=False, markup=False)

    def tell(self, record: Record, rounds: Sequence[Round]) -> None:
        """Rounds have ended and been evaluated."""
        host.end_if_terminating()
        for row in rounds:
            self.display.round(row)
            record.round(row)

    def _announce(self) -> None:
        federation = self._federation
        if self.session.warning:
            self.say(f"warning: {self.session.warning}")
        self._console.print(
            f"{len(federation.hospitals)} hospitals, {int(federation.totals.sum()):,} rows, "
            f"{federation.X.shape[1]} features; {self.session.where}",
            highlight=False,
            markup=False,
        )
        if self.session.dashboard:
            self.say(f"dashboard: {self.session.dashboard}")
