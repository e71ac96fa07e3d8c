"""Runs every strategy of a configuration with every seed, and writes the files and MLflow's records."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from rich.console import Console

from raysim.core.errors import ConfigError, ResourceError, TrainingDiverged
from raysim.engine.job import Result
from raysim.engine.privacy.privacy_ledger import guaranteed
from raysim.experiment import tuning
from raysim.experiment.entries import entries
from raysim.experiment.listener import Listener, data_tags, listen
from raysim.experiment.notes import headlines, note, title, verdict
from raysim.experiment.one_run import Run
from raysim.experiment.prepared import Prepared
from raysim.experiment.run_actors import Spared
from raysim.experiment.services import RunServices
from raysim.experiment.unseen.fold_runs import FoldRuns, hosts
from raysim.experiment.unseen.keeping import JUDGED
from raysim.experiment.unseen.rows import Judged
from raysim.storage import resume
from raysim.storage.finished import FINISHED
from raysim.storage.manifest import Kind, Manifest
from raysim.storage.resume import Opened
from raysim.tracking.client import RUN_TAG
from raysim.tracking.recording import Record

Conclude = Callable[[Sequence[Result], Manifest], None]
"""A function that writes the files of a whole experiment, given the results of all its runs."""

Begin = Callable[[Manifest], None]
"""A function that writes what an experiment needs to be resumed, in addition to its configuration."""


class Experiment(Prepared):
    """The runs of a prepared configuration, one for each strategy and seed, with their files and MLflow records."""

    def run(
        self,
        console: Console,
        *,
        in_process: bool,
        verbose: bool,
        begin: Begin | None = None,
        conclude: Conclude | None = None,
        kind: Literal["compare", "curve"] = "compare",
    ) -> list[Result]:
        """Execute all runs.

        If ``conclude`` is given, the runs belong to a comparison or curve, as ``kind`` says. A resumed experiment does
        not repeat its finished runs.
        """
        services = RunServices(self.config, self._first, self.folder, console)
        try:
            if conclude is None:
                results = [self._run_alone(services, in_process, verbose)]
            else:
                results = self._run_and_record(services, in_process, verbose, begin, conclude, kind)
        except ConfigError:
            raise
        except BaseException as error:
            # Resuming would only repeat a start that failed for lack of resources.
            again = not isinstance(error, ResourceError) or resume.has_progress(self.folder)
            if again and (self.folder / resume.FILE).exists():
                services.say(f"stopped; continue with 'raysim resume {self.folder}'")
            raise
        if services.mlflow_warning is not None:
            services.say(services.mlflow_warning)
        return results

    def _run_alone(self, services: RunServices, in_process: bool, verbose: bool) -> Result:
        (entry,), (seed,) = self.entries, self.seeds
        checked = self._checked.get((entry, seed))
        data = self._rows_of(entry, seed).folder
        run = Run(entry, seed, data, self.folder, entry.label, nested=False, checked=checked)
        with run.opened(self.federations[seed], again=self._again) as opened:
            with services.ready(in_process, verbose, self._load(1), self._rounds(), self.remarks()):
                result = self._executed(services, run, opened, None)
            opened.finish()
        return result

    def _run_and_record(
        self,
        services: RunServices,
        in_process: bool,
        verbose: bool,
        begin: Begin | None,
        conclude: Conclude,
        kind: Kind,
    ) -> list[Result]:
        frozen = self.config.frozen()
        prints = {str(seed): federation.fingerprint for seed, federation in self.federations.items()}
        run_count = len(self.seeds) * (len(self.entries) + len(self.folds) * len(hosts(self.entries)))
        load = self._load(run_count + len(self._trials) * len(self._trial_seeds))
        with resume.opened(kind, self.folder, frozen, self._first, prints, again=self._again) as whole:
            if begin is not None:
                with resume.writing(self.folder):
                    begin(whole.manifest)
            tags = {RUN_TAG: whole.ticket.id, "seed": ", ".join(map(str, self.seeds))}
            tags |= data_tags(self.config.data, self._first)
            with (
                services.ready(in_process, verbose, load, self._rounds(), self.remarks()),
                services.recorder.run(self.config.name, frozen, tags, again=whole.again) as parent,
            ):
                trials, tried = self._run_trials(services, whole.manifest, parent)
                runs = [self._nested(entry, seed) for seed in self.seeds for entry in self.entries]
                results = []
                for run, result in self._run_all(services, runs, parent):
                    if isinstance(result, Result):
                        results.append(result)
                        whole.manifest.add(Manifest.read(run.folder))
                tuning.charge(results, tried)
                self.left_out = self._run_left_out(services, whole, parent, results)
                services.display.conclude()
                with resume.writing(self.folder):
                    conclude(results, whole.manifest)
                manifest, conclusion = whole.manifest, verdict(whole.manifest)
                figures = headlines(manifest, results)
                named = title(self.config.name, conclusion)
                parent.done(figures, manifest.paths(), note(manifest, kind), named, conclusion)
            whole.finish()
            folders = (*(each.folder for each in results), *(each.folder for each in self.left_out))
            for folder in (*trials, *folders):
                for name in (FINISHED, JUDGED):
                    (folder / name).unlink(missing_ok=True)
        return results

    def _run_trials(
        self, services: RunServices, out: Manifest, parent: Record
    ) -> tuple[list[Path], list[tuning.TrialResult]]:
        """Execute the trials of tuning, and give each strategy its best values; return the trials' folders and
        results.
        """
        if self._tune is None or not self._trials:
            return [], []
        trials = [(trial, seed) for trial in self._trials for seed in self._trial_seeds]
        runs = [self._nested(entries([trial.config])[0], seed, trial=True) for trial, seed in trials]
        tried = []
        for (trial, seed), (run, result) in zip(
            trials, self._run_all(services, runs, parent, TrainingDiverged), strict=True
        ):
            if isinstance(result, Result):
                moved, figure = result.outcome.traffic, tuning.figure(result.outcome, self.federations[seed])
                tried.append(tuning.TrialResult(trial, figure, moved.down, moved.up, result.outcome.privacy))
            else:  # the number of its rounds is unknown: count all
                whole = guaranteed(run.job, self._data_of(run))
                tried.append(tuning.TrialResult(trial, math.inf, privacy=whole))
        table = tuning.table(self._tune, tried)
        out.csv(tuning.FILE, table)
        values = tuning.chosen(table)
        self.entries = entries([tuning.with_values(e.config, values.get(e.label, {})) for e in self.entries])
        return [run.folder for run in runs], tried

    def _run_left_out(
        self, services: RunServices, whole: Opened, parent: Record, results: Sequence[Result]
    ) -> list[Judged]:
        """Train the strategies again with every seed, each time without the hospitals of one fold. Return the
        predictions at these hospitals.
        """
        if not self.folds:
            return []
        together = 1 if services.actors is None else services.actors.count
        served = {result.label: tuple(result.outcome.figures) for result in results}
        runs = FoldRuns(
            self.config, self.folds, self.seeds, self.entries, self.folder, whole.ticket.id, together, served
        )
        return runs.judged(self._run_all(services, runs.runs, parent), whole.manifest)

    def _run_all(
        self, services: RunServices, runs: Sequence[Run], parent: Record, spared: Spared = ()
    ) -> Iterator[tuple[Run, Result | Exception]]:
        """Execute runs of a comparison; yield each, in order, with its result.

        A run is yielded with its error if the error's type is in ``spared``.
        """
        if services.actors is not None:
            listeners = [Listener(services, run, partial(self._data_of, run), parent) for run in runs]
            yield from listen(services.actors, listeners, self._again, spared)
            return
        for run in runs:
            run.prepare()
            try:
                with run.opened(self._data_of(run), again=self._again) as opened:
                    result = self._executed(services, run, opened, parent)
                    opened.finish(result.outcome, models=bool(run.held))
            except spared as error:
                yield run, error
            else:
                yield run, result

    def _executed(self, services: RunServices, run: Run, opened: Opened, parent: Record | None) -> Result:
        """Execute a run in ``services.session``; used if ``services.actors`` is None."""
        federation = self._data_of(run)
        with (
            Listener(services, run, lambda: federation, parent) as listener,
            contextlib.closing(run.run(federation, opened, services.session, services.say)) as events,
        ):
            listener.begin(opened.ticket.id, opened.again)
            for event in events:
                if isinstance(event, Result):
                    listener.end(event, opened.manifest)
                    return event
                listener.round(event)
        raise RuntimeError("the run ended without a result")
