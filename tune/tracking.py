"""The record of a sweep in MLflow: sweep, trial and seed are nested runs.

Only the driver writes this record. A thread sends trials to the MLflow store after they are in the journal. Trials that
could not be sent are sent again, also when the sweep is resumed. In MLflow, a sweep that fails is ``FAILED``, and a
stopped one is ``KILLED`` until it is resumed.
"""

from __future__ import annotations

import contextlib
import math
import queue
import shlex
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from raysim.config import plugins
from raysim.config.checking import validated
from raysim.config.plugins import label, predicted
from raysim.config.schema import Config
from raysim.core import bounded, host
from raysim.core.atomic import write_json
from raysim.core.errors import ConfigError
from raysim.core.package import FOLDER, __version__
from raysim.engine.job import Round
from raysim.tracking.charts import PREDICTS_TAG, VERDICT_TAG, runs_page, view_of
from raysim.tracking.client import LOGGERS, NOTE_TAG, Status, Tracker, parameter_name
from raysim.tracking.recording import SETTINGS, WAITS, Sender
from raysim.tracking.stores import NOWHERE
from raysim.tune.journal import Finished
from raysim.tune.plan import SweepPlan
from raysim.tune.spaces import Params, Space
from raysim.tune.trial import headline

STATUS: Mapping[str, Status] = {"completed": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
"""The MLflow status of each state of a trial."""

SENT = "mlflow.json"
"""The file that lists the MLflow runs of a sweep and its trials."""

LOGARITHM = "log10 "
"""The prefix of MLflow parameters that are decimal logarithms of a key's value."""

RECOMMENDED = "recommended"
"""The word that marks the recommended trial in MLflow: the value of a tag, and the end of the trial's name."""

COMPARED = 50
"""The sweep's description in MLflow links to a comparison of at most this number of trials."""


@dataclass(frozen=True, eq=False)
class Conclusion:
    """What is sent to MLflow when a sweep ends."""

    members: Mapping[int, bool]
    """Whether each completed trial, by number, is in the Pareto set."""
    recommended: int | None
    """The number of the recommended trial; None if there is none."""
    figures: Mapping[str, float]
    files: Mapping[str, Path]
    note: str
    """The reasons for the recommendation and the sweep's folder, in Markdown."""


class SweepTracker(Sender):
    """A thread that sends a sweep's trials to the configured MLflow store, and lists their runs in :data:`SENT`."""

    def __init__(self, folder: Path, plan: SweepPlan, config: Config, fingerprint: str) -> None:
        super().__init__(config.tracking)
        self.pending = 0
        self._folder = folder
        self._plan = plan
        self._config = config
        self._tags = {"source": config.data.source, "data": fingerprint, "sweep": str(folder), "code": code_version()}
        self._tags[PREDICTS_TAG] = predicted(config.data)
        self._path = folder / SENT
        self._run, self._sent = recorded(folder)
        self._partial_runs: list[str] | None = None if self._run else []
        self._queue: queue.SimpleQueue[Finished | Conclusion | None] = queue.SimpleQueue()
        self._concluded = False
        self._stopped: Status | None = None

    def __enter__(self) -> SweepTracker:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closing.set()
        self._queue.put(None)
        stopped = error is not None or not self._concluded
        if stopped and self._thread is not None:
            self._stopped = "FAILED" if isinstance(error, Exception) else "KILLED"
        if not self._joined(error, stopped=stopped):
            self.pending += self._queue.qsize()  # the queue lacks the item being sent, but contains the end marker

    @property
    def address(self) -> str:
        """Return the address of an MLflow server's page with the trials, or the command that opens a local store.

        The text is empty if there is no store, or if the address may contain a password.
        """
        uri = self._config.tracking.uri
        if uri == NOWHERE or "@" in uri:  # the address may contain a password
            return ""
        if not uri.startswith("http"):
            return f"raysim ui {shlex.quote(str(self._folder))} --uri {shlex.quote(uri)}"
        tracker = self._tracker  # None until the other thread has opened it
        return uri if tracker is None else f"{uri.rstrip('/')}/{runs_page(tracker.experiment)}"

    def started(self, number: int) -> None:
        """Do nothing."""

    def finished(self, trial: Finished) -> None:
        """Send a trial that has ended, in place of the record of an earlier attempt."""
        self._queue.put(trial)

    def catch_up(self, trials: Iterable[Finished]) -> None:
        """Send those of the ``trials`` that have not been sent."""
        for trial in trials:
            if trial.number not in self._sent:
                self._queue.put(trial)

    def conclude(self, conclusion: Conclusion) -> None:
        """Send the results of the sweep to MLflow."""
        self._concluded = True
        self._queue.put(conclusion)

    def _work(self) -> None:
        import mlflow.tracking  # noqa: F401  # it sets the levels of its loggers when it is imported

        with host.environment(SETTINGS, keep=True), host.quiet(*LOGGERS):
            self._send_all()

    def _send_all(self) -> None:
        tries = 0
        while (item := self._queue.get()) is not None:
            while not self._done(item):
                self._calls += 1
                if self._closing.is_set():
                    self.pending += 1
                    break
                self._closing.wait(WAITS[min(tries, len(WAITS) - 1)])
                tries += 1
            else:
                tries = 0
                self._calls += 1

    def _end_all(self) -> None:
        with contextlib.suppress(Exception), self._ending:  # any error means that the store is unreachable
            for run in (*(self._partial_runs or ()), self._run):
                if self._tracker is not None and run is not None and self._stopped is not None:
                    self._tracker.end(run, self._stopped)

    def _done(self, item: Finished | Conclusion) -> bool:
        """Send ``item`` and return whether this succeeded.

        At the end of the sweep, nothing more is sent once an item has failed.
        """
        if self.pending and self._closing.is_set():
            return False
        try:
            if isinstance(item, Finished):
                self._send(item)
            else:
                self._conclude(item)
        except Exception as error:
            self._failed(error)
            return False
        return True

    def _store(self) -> Tracker:
        """Return the opened MLflow store.

        If the store has no run for the sweep, one is added. Runs of trials that were not sent completely are deleted.
        """
        first, tracker = self._tracker is None, self._opened()
        if first and self._run is not None:
            tracker.reopen(self._run)
            self._end_all()  # if the sweep was stopped in the meantime
        if self._run is None:
            params = self._config.frozen() | {"sweep": self._plan.sweep.frozen()}
            tags = self._tags | {"level": "sweep", "strategy": label(self._config.strategy)}
            tags["seed"] = ", ".join(map(str, self._plan.seeds))
            self._run = tracker.start(self._config.name, params, tags)
            self._end_all()
            self._write()
        if self._partial_runs is None:
            self._partial_runs = [run for run in tracker.nested(self._run) if run not in self._sent.values()]
        while self._partial_runs:
            tracker.discard(self._partial_runs[-1])
            self._partial_runs.pop()
        return tracker

    def _send(self, trial: Finished) -> None:
        tracker = self._store()
        assert self._partial_runs is not None
        if trial.number in self._sent:
            self._partial_runs.append(self._sent.pop(trial.number))
            self._store()
        config = self._plan.config(trial.params, "validation")
        tags = self._tags | {"level": "trial", "trial": str(trial.number), "status": trial.status}
        tags["strategy"] = label(config.strategy)
        run = tracker.start(f"trial {trial.number}", searched(trial.params, self._plan.space), tags, self._run)
        self._partial_runs.append(run)
        tracker.metrics(run, curve(trial) + final(trial, max(plugins.rounds(config), 1)))
        for seed, rounds in trial.rounds.items():
            nested = tracker.start(
                f"trial {trial.number}, seed {seed}",
                {"seed": seed, **searched(trial.params, self._plan.space)},
                tags | {"level": "seed"},
                run,
            )
            tracker.rounds(nested, rounds)
            ended: Status = "FINISHED" if trial.error is None else "FAILED"
            tracker.finish(nested, headline(trial.finals.get(seed, {})), {}, ended, trial.error)
        if trial.error is not None:
            tracker.tag(run, {"error": trial.error[:5000]})
        with self._ending:
            tracker.end(run, STATUS[trial.status])
            self._partial_runs.remove(run)
        self._sent[trial.number] = run
        self._write()

    def _conclude(self, conclusion: Conclusion) -> None:
        tracker, members, recommended = self._store(), conclusion.members, conclusion.recommended
        assert self._run is not None
        self._mark(tracker, recommended)
        for number, member in members.items():
            if number in self._sent:
                verdict = RECOMMENDED if number == recommended else "not dominated" if member else "dominated"
                tracker.tag(self._sent[number], {"pareto": str(member).lower(), VERDICT_TAG: verdict})
        tracker.metrics(self._run, [(name, value, 0) for name, value in conclusion.figures.items()])
        # The Pareto set first: the length of an address limits how many runs MLflow compares.
        trials = sorted(self._sent, key=lambda number: not members.get(number, False))
        together = tracker.side_by_side([self._sent[number] for number in trials[:COMPARED]])
        charts = tracker.show(
            self._run, view_of(self._run, *background_plots(self._plan.space), self._plan.sweep.objectives)
        )
        links = f"[Plot the trials]({charts}) · [Compare the trials]({together})"
        tracker.tag(self._run, {NOTE_TAG: f"{conclusion.note}\n\n{links}" if trials else conclusion.note})
        if recommended is not None:
            taken = f"trial {recommended} is {RECOMMENDED}"
            tracker.tag(self._run, {VERDICT_TAG: taken})
            tracker.rename(self._run, f"{self._config.name}: {taken}")
        tracker.keep(self._run, conclusion.files)
        tracker.end(self._run, "FINISHED")

    def _mark(self, tracker: Tracker, recommended: int | None) -> None:
        assert self._run is not None
        numbers = {run: number for number, run in self._sent.items()}
        for run in tracker.nested(self._run, {VERDICT_TAG: RECOMMENDED}):
            if run in numbers:
                tracker.rename(run, f"trial {numbers[run]}")
        if recommended in self._sent:
            tracker.rename(self._sent[recommended], f"trial {recommended}, {RECOMMENDED}")

    def _write(self) -> None:
        write_json(self._path, {"sweep": self._run, "trials": self._sent})


def recorded(folder: Path) -> tuple[str | None, dict[int, str]]:
    """Return the id of the MLflow run of the sweep in ``folder`` (None if it was not sent), and the ids of its
    trials' runs by trial number."""
    path = folder / SENT
    try:
        state = bounded.read_json(path) if path.exists() else {}
        sweep: str | None = validated(str | None, state.get("sweep"), "sweep")  # type: ignore[arg-type]
        return sweep, validated(dict[int, str], state.get("trials", {}), "trials")
    except (OSError, ValueError, AttributeError, ConfigError) as error:
        raise ConfigError(
            f"{path}: cannot be read ({error}); remove it, then all trials are sent to MLflow again"
        ) from None


def background_plots(space: Space) -> tuple[list[str], list[str]]:
    """Return the names of trials' MLflow parameters in two lists: those with a numeric axis in charts, and the
    others."""
    numbers: list[str] = []
    others: list[str] = []
    for dimension in space:
        values = dimension.values
        number = not values or all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        named = f"{LOGARITHM}{dimension.key}" if dimension.key in space.logarithmic else dimension.key
        (numbers if number else others).append(parameter_name(named))
    return numbers, others


def searched(params: Params, space: Space) -> dict[str, Any]:
    """Return a trial's hyper-parameters, and decimal logarithms of those that are searched on a logarithmic scale."""
    logarithms = {
        f"{LOGARITHM}{key}": math.log10(value)
        for key, value in params.items()
        if key in space.logarithmic and isinstance(value, int | float) and value > 0
    }
    return {**params, **logarithms}


def curve(trial: Finished) -> list[tuple[str, float, int]]:
    """Return each round's metrics of the headline model: ``(name, mean over seeds, round)``."""
    by_round: dict[int, list[Round]] = {}
    for rows in trial.rounds.values():
        for row in rows:
            by_round.setdefault(row.round, []).append(row)
    values = []
    for t, rows in sorted(by_round.items()):
        metrics = [headline(row.metrics) for row in rows if row.metrics]
        for name in metrics[0] if metrics else ():
            values.append((name, float(np.mean([each.get(name, math.nan) for each in metrics])), t))
    return values


def final(trial: Finished, step: int) -> list[tuple[str, float, int]]:
    """Return the values of a whole trial for MLflow, as ``(name, value, step)``: standard deviations over seeds
    (``_std``), mean traffic over seeds, and the trial's seconds.
    """
    values = [(f"{name}_std", spread, step) for name, (_, spread) in trial.figures.items()]
    values += [(name, trial.figures[name][0], step) for name in ("bytes_down", "bytes_up") if name in trial.figures]
    return [*values, ("seconds", trial.seconds, step)]


def code_version() -> str:
    """Return the version of raysim, with the commit if it runs from a git checkout."""
    if not (FOLDER.parent / ".git").exists():
        return __version__
    done = subprocess.run(
        ["git", "-C", str(FOLDER), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return f"{__version__}+{done.stdout.strip()}" if done.returncode == 0 else __version__
