"""The services that the runs of one experiment share: MLflow, the hospital actors, and the display."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from raysim.cluster.connection import awaited, connected, dashboard_address, live_nodes
from raysim.config.schema import Config
from raysim.data.federation import Federation
from raysim.experiment import pending_mlflow
from raysim.experiment.run_actors import RunActors
from raysim.experiment.run_placement import Load, at_once, fits_here
from raysim.experiment.session import Session, open_session
from raysim.report.terminal.progress import RunProgress, phase, say, size_in_words
from raysim.storage import resume
from raysim.tracking.recording import Recorder

STARTING = "starting Ray"


class RunServices:
    """The services that the runs of an experiment share while they execute."""

    session: Session
    actors: RunActors | None = None
    """The actors that execute runs concurrently; None if ``session`` executes them one after the other."""
    recorder: Recorder
    display: RunProgress
    mlflow_warning: str | None = None

    def __init__(self, config: Config, federation: Federation, folder: Path, console: Console) -> None:
        """Store the arguments."""
        self._config = config
        self._federation = federation
        self._folder = folder
        self._console = console

    @contextlib.contextmanager
    def ready(self, in_process: bool, verbose: bool, load: Load, rounds: int, remarks: Sequence[str]) -> Iterator[None]:
        """Start MLflow, the hospitals and the display. All runs together have ``rounds`` rounds.

        ``remarks`` are printed when the hospitals are ready.
        """
        config = self._config
        with contextlib.ExitStack() as standing:
            self.recorder = standing.enter_context(Recorder(config.tracking, verbose))
            here = not awaited() and fits_here(config.resources, load, self._products(load) * rounds)
            in_process = in_process or here
            with contextlib.nullcontext() if in_process else phase(self._console, STARTING):
                self._bring_up(standing, in_process, verbose, load)
            self._announce()
            for line in remarks:
                self.say(line)
            with RunProgress(self._console, load.runs, rounds) as self.display:
                yield
        with resume.writing(self._folder):
            self.mlflow_warning = pending_mlflow.keep(self._folder, self.recorder, config.tracking.uri)

    def _bring_up(self, standing: contextlib.ExitStack, in_process: bool, verbose: bool, load: Load) -> None:
        """Start the hospitals, or the actors that execute whole runs. They end when ``standing`` is closed."""
        federation, resources = self._federation, self._config.resources
        if not in_process and load.runs > 1:
            standing.enter_context(connected(verbose, resources.dashboard))
            if (count := at_once(resources, live_nodes(), load)) > 1:
                self.actors = RunActors(count, federation.totals, resources)
                standing.callback(self.actors.close)
                return
        opened = open_session(
            federation.totals,
            resources,
            in_process=in_process,
            verbose=verbose,
            names=federation.hospitals,
        )
        self.session = standing.enter_context(opened)

    def _products(self, load: Load) -> float:
        """Return the cost of training in a round in which all hospitals take part: rows times parameters times
        epochs."""
        rows = len(self._federation.X) * self._config.training.local_epochs
        return rows * load.parameters / len(self._federation.hospitals)

    def say(self, text: str) -> None:
        """Print a line for the user."""
        self._console.print(text, soft_wrap=True, highlight=False, markup=False)

    def _announce(self) -> None:
        federation, together = self._federation, self.actors
        where, warning, dashboard = (
            (together.where, None, dashboard_address())
            if together is not None
            else (self.session.where, self.session.warning, self.session.dashboard)
        )
        if warning:
            self.say(f"warning: {warning}")
        say(self._console, f"{size_in_words(federation, self._config)}; {where}")
        if dashboard:
            self.say(f"dashboard: {dashboard}")
