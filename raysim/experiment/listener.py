"""Reports one run to MLflow and the user during the run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType

from raysim.config import plugins
from raysim.config.sections.plugin_sections import DataSection
from raysim.core import host
from raysim.core.errors import ResourceError
from raysim.data.federation import Federation
from raysim.engine import timing
from raysim.engine.job import Result, Round
from raysim.experiment.notes import note, observed_over_expected, title, verdict
from raysim.experiment.one_run import Run
from raysim.experiment.run_actors import Begun, Failed, RunActors, Spared
from raysim.experiment.services import RunServices
from raysim.report.supplement import privacy
from raysim.report.terminal.progress import figure
from raysim.storage.finished import load_finished
from raysim.storage.manifest import Manifest
from raysim.tracking.charts import PREDICTS_TAG
from raysim.tracking.client import DATA_TAGS, RUN_TAG
from raysim.tracking.recording import Record


class Listener:
    """Reports the progress of a ``run`` to MLflow and the display. Use it as a context manager.

    The run's MLflow record is nested in ``parent``, the record of a comparison.
    """

    def __init__(
        self, services: RunServices, run: Run, federation: Callable[[], Federation], parent: Record | None
    ) -> None:
        """Store the arguments."""
        self.services = services
        self.run = run
        self._open = federation
        self._parent = parent
        self._record: Record | None = None
        self._began = 0.0
        self._last_round = -1

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._record is not None:
            self._record.__exit__(kind, error, at)

    def begin(self, ticket: str, again: bool) -> None:
        """Record that the run begins, or is resumed (``again``), under the id ``ticket``."""
        if self._record is not None:
            return
        run, config = self.run, self.run.entry.config
        self._began = time.perf_counter()
        tags = {"strategy": run.entry.label, "seed": str(run.seed), RUN_TAG: ticket}
        tags |= data_tags(config.data, self._open())
        if config.privacy is not None:
            tags["privacy"] = f"{config.privacy.unit}, {config.privacy.effective_mode}"
        self.services.display.begin(run.name, plugins.rounds(config))
        frozen = run.frozen
        self._record = self.services.recorder.run(run.name, frozen, tags, self._parent, again=again)

    def round(self, row: Round) -> None:
        """Record that a round has been evaluated; repeated rounds are ignored."""
        host.end_if_terminating()
        if self._record is None or row.round <= self._last_round:
            return
        self._last_round = row.round
        self.services.display.resume(self.run.name)
        self.services.display.round(row)
        self._record.round(row)

    def ended(self) -> Result:
        """Record that the run has ended in another process, and return its result from the run's folder."""
        outcome = load_finished(self.run.folder)
        if outcome is None:
            raise ResourceError(f"{self.run.folder}: the results of its run cannot be read; check the disk")
        result = self.run.result(self._open(), outcome)
        self.end(result, Manifest.read(self.run.folder))
        return result

    def end(self, result: Result, manifest: Manifest) -> None:
        """Record that the run has ended, together with the files that its ``manifest`` lists."""
        from raysim.statistics.differences.paired import FEW_HOSPITALS  # takes 0.2 s to import

        outcome, kind, config = result.outcome, result.federation.task, self.run.entry.config
        model, headline = list(outcome.metrics.items())[-1]
        timed = timing.figures(outcome, config.system, kind)
        setup = {"bytes_setup_down": outcome.setup.down, "bytes_setup_up": outcome.setup.up}
        figures = {**headline, **timed, **setup, **privacy.figures(outcome.privacy)}
        figures["observed_over_expected"] = observed_over_expected(outcome)
        if self._record is not None:
            tags = verdict(manifest) | {"strategy": self.run.entry.label, "learner": self.run.entry.learner}
            # In a comparison the parent has the answer in its name, and the run keeps its own name.
            named = "" if self._parent is not None else title(self.run.name, tags)
            self._record.done(figures, manifest.paths(), note(manifest, "run"), named, tags)
        mean = headline[kind.headline]
        digits = kind.decimals(mean) + 1
        last = "worst decile" if headline["hospitals"] >= FEW_HOSPITALS else f"{kind.worst} hospital"
        self.services.display.resume(self.run.name)
        self.services.display.end(
            time.perf_counter() - self._began,
            f"{model} mean {kind.title} {figure(mean, digits)}, {last} {figure(headline['worst_decile'], digits)}",
        )
        if outcome.attack is not None:
            from raysim.report.supplement import attacks

            self.services.say(attacks.sentence(outcome.attack, kind))
        if outcome.privacy is not None:
            self.services.say(f"privacy: {outcome.privacy.sentence()}")


def listen(
    actors: RunActors, listeners: Sequence[Listener], again: bool, spared: Spared
) -> Iterator[tuple[Run, Result | Exception]]:
    """Execute the runs of ``listeners`` concurrently on ``actors``, and report each run's events to its listener.

    Yields the runs in order, each with its result, or with its error if the error's type is in ``spared``. Other errors
    are raised.
    """
    runs, finished, position = [listener.run for listener in listeners], dict[int, Result | Exception](), 0
    at_work = dict(enumerate(listeners))
    try:
        with contextlib.closing(actors.run(runs, again, spared)) as events:
            for number, event in events:
                listener = listeners[number]
                if isinstance(event, Begun):
                    listener.begin(event.ticket, event.again)
                elif isinstance(event, Round):
                    listener.round(event)
                elif isinstance(event, str):
                    listener.services.say(event)
                elif isinstance(event, Failed):
                    at_work.pop(number).__exit__(type(event.error), event.error, None)
                    if isinstance(event.error, spared):
                        finished[number] = event.error
                else:
                    with at_work.pop(number):
                        finished[number] = listener.ended()
                while position in finished:
                    yield runs[position], finished.pop(position)
                    position += 1
    finally:
        for listener in at_work.values():
            listener.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)


def data_tags(section: DataSection, federation: Federation) -> dict[str, str]:
    """Return the tags that describe a run's data and the predicted event in MLflow."""
    tags = dict(zip(DATA_TAGS, (section.source, federation.fingerprint), strict=True))
    return tags | {PREDICTS_TAG: plugins.predicted(section)}
