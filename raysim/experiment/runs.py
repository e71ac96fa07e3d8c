"""Runs every strategy of a configuration with every seed, and writes the files and MLflow's records.

Errors in the configuration or the data are reported before Ray starts and before anything is written.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from rich.console import Console

from raysim.config import learners, plugins, reading
from raysim.config.schema import Config
from raysim.config.sections.training import TuneSection
from raysim.core import csv_files
from raysim.core.errors import ConfigError, ResourceError, TrainingDiverged
from raysim.data.federation import Federation
from raysim.engine import timing
from raysim.engine.attacks.checks import warnings
from raysim.engine.job import Job, Result
from raysim.engine.messages.plan import ModelSpec
from raysim.engine.privacy.noisy_statistics import left_out
from raysim.engine.privacy.privacy_ledger import guaranteed
from raysim.engine.server.job_checks import check_job
from raysim.experiment import idle_keys, tuning
from raysim.experiment.entries import Entry, entries, folder_of
from raysim.experiment.listener import Listener, data_tags, listen
from raysim.experiment.notes import headlines, note, taken, title, verdict
from raysim.experiment.one_run import Run
from raysim.experiment.pairs import Unpaired, going_together, sentences
from raysim.experiment.run_actors import Spared
from raysim.experiment.run_placement import Load
from raysim.experiment.scores import check as check_scores
from raysim.experiment.services import RunServices
from raysim.experiment.unseen.folds import check as check_folds
from raysim.experiment.unseen.folds import cost, folds_of
from raysim.experiment.unseen.keeping import JUDGED
from raysim.experiment.unseen.playing import FoldRuns, hosts
from raysim.experiment.unseen.rows import Judged
from raysim.report.terminal.progress import data_warnings
from raysim.storage import resume
from raysim.storage.file_store import check as check_file_store
from raysim.storage.finished import FINISHED
from raysim.storage.manifest import Kind, Manifest
from raysim.storage.results import choose_folder
from raysim.storage.resume import Opened
from raysim.tracking.client import RUN_TAG
from raysim.tracking.recording import Record
from raysim.tracking.stores import check_reachable

Conclude = Callable[[Sequence[Result], Manifest], None]
"""A function that writes the files of the whole experiment from all results."""

OnResult = Callable[[Result], None]
"""A function that is called with each result of an experiment, in order, while other runs still execute."""

Begin = Callable[[Manifest], None]
"""A function that writes what an experiment needs to be resumed, in addition to its configuration."""


class Experiment:
    """A configuration that was checked against its data, to be run with each of ``seeds`` and each of ``configs``.

    - ``configs``: complete configurations, one for each strategy.
    - ``again``: resume the stopped experiment in folder ``out``.
    - ``tune``: the settings to try before the comparison; the chosen values replace those in ``configs``.
    """

    def __init__(
        self,
        config: Config,
        configs: Sequence[Config],
        seeds: Sequence[int],
        out: Path | None,
        *,
        again: bool = False,
        tune: TuneSection | None = None,
    ) -> None:
        self.config = config
        self._tune = tune
        self._again = again
        self.seeds = seeds
        self.entries = entries(configs)
        idle_keys.check((entry.config, entry.strategy) for entry in self.entries)
        self.unpaired: tuple[Unpaired, ...] = ()
        """The strategies and models that cannot be combined, if the experiment crosses them."""
        self._trial_seeds = () if tune is None else tune.of_seeds(seeds)
        self._source = plugins.build_source(config.data)
        check_reachable(config.tracking.uri)
        if config.checkpoint.path is not None and config.checkpoint.every != 0:
            check_file_store(config.checkpoint.path)
        self.folder = choose_folder(out, config.name, again=again)
        self.federations = {seed: plugins.build_federation(config, self._source, seed) for seed in seeds}
        self.folds = (
            [] if config.evaluation.unseen is None else folds_of(config.evaluation.unseen, self._first, seeds[0])
        )
        self._others: dict[int, Federation] = {}
        """The federations of models that use other columns than the configuration's own model, with the same rows."""
        self.left_out: list[Judged] = []
        """The results at hospitals that runs have left out; empty before these runs."""
        self._parameters = 0  # the size of the largest model
        self._checked: dict[tuple[Entry, int], Job] = {}
        if any(entry.way != entry.label for entry in self.entries):
            self.entries, self.unpaired = going_together(self.entries, self._check_first)
        tuned = [
            each.config
            for each in self.entries
            if each.strategy.uses_training() or (tune is not None and tune.tries_models(each.learner))
        ]
        self._trials = [] if tune is None else tuning.trials(tune, tuned)
        self._check()

    @classmethod
    def comparing(cls, config: Config, out: Path | None, *, again: bool = False) -> Experiment:
        """Make the experiment of the strategies and seeds that a resolved configuration compares.

        ``out`` and ``again`` are the same as for the class.
        """
        seeds = config.seeds or (config.seed,)
        check_folds(config)
        idle_keys.check_comparison(config)
        experiment = cls(config, reading.compared(config), seeds, out, again=again, tune=config.tune)
        labels = [entry.label for entry in experiment.entries]
        experiment.config = config.replaced(reference=learners.reference_among(config, labels))
        check_scores(experiment._first, labels)
        return experiment

    def play(
        self,
        console: Console,
        *,
        in_process: bool,
        verbose: bool,
        begin: Begin | None = None,
        conclude: Conclude | None = None,
        on_result: OnResult | None = None,
        kind: Literal["compare", "curve"] = "compare",
    ) -> list[Result]:
        """Execute all runs. Each run's files are written, and recorded in MLflow, when the run ends.

        With ``conclude`` the runs are nested in an experiment of this ``kind``, to which ``begin`` may add files.
        ``on_result`` is called with results if runs execute in separate processes. In a resumed folder, finished runs
        are not repeated.
        """
        services = RunServices(self.config, self._first, self.folder, console)
        try:
            if conclude is None:
                results = [self._run_alone(services, in_process, verbose)]
            else:
                results = self._run_all(services, in_process, verbose, begin, conclude, on_result, kind)
        except ConfigError:
            raise
        except BaseException as error:
            # Resuming would only repeat a start that failed for lack of resources.
            again = not isinstance(error, ResourceError) or resume.has_progress(self.folder)
            if again and (self.folder / resume.FILE).exists():
                services.say(f"stopped; continue with 'raysim resume {self.folder}'")
            raise
        if services.unsent is not None:
            services.say(services.unsent)
        return results

    def remarks(self) -> list[str]:
        """Return lines for the user before the start.

        They report unusual data, default seeds, strategies' remarks on their settings for these hospitals, and doubts
        about rules and privacy. Each remark of strategies is given once, after their labels.
        """
        hidden = any(entry.config.hides_sizes for entry in self.entries)
        sizes = self._first.sizes("train")
        sizes = np.ones_like(sizes) if hidden else sizes
        by_remark: dict[str, list[str]] = {}
        for entry in self.entries:
            if remark := entry.strategy.remark(sizes):
                by_remark.setdefault(remark, []).append(entry.label)
        doubts = [
            line
            for entry in self.entries
            for line in (
                *warnings(entry.config.adversary, entry.config.aggregation, len(sizes)),
                *left_out(entry.config.privacy),
            )
        ]
        seeds = []
        if self.config.seeds and "seeds" not in self.config.model_fields_set:
            named = ", ".join(map(str, self.seeds))
            seeds.append(
                f"seeds {named}: one seed cannot demonstrate a difference between strategies; --seed {self.seeds[0]} "
                "runs one seed"
            )
        private = any(entry.config.privacy is not None for entry in self.entries)
        remarks = [f"{', '.join(labels)}: {remark}" for remark, labels in by_remark.items()]
        remarks += idle_keys.remarks((entry.config, entry.strategy) for entry in self.entries)
        further = []
        if self.folds:
            further.append(cost(self.folds, len(hosts(self.entries)), len(self.seeds)))
        odd = data_warnings(self.federations.values(), private)
        return [*odd, *seeds, *further, *sentences(self.unpaired), *remarks, *dict.fromkeys(doubts)]

    @property
    def _first(self) -> Federation:
        """The federation of the first seed. All seeds have the same hospitals."""
        return next(iter(self.federations.values()))

    def _rounds(self) -> int:
        """Return the number of rounds of all runs, trials included."""
        tried = sum(plugins.rounds(trial.config) for trial in self._trials) * len(self._trial_seeds)
        seeds, again = len(self.seeds), hosts(self.entries) if self.folds else ()
        once = sum(plugins.rounds(entry.config) for entry in self.entries)
        return tried + seeds * (once + len(self.folds) * sum(plugins.rounds(entry.config) for entry in again))

    def _load(self, runs: int) -> Load:
        federation = self._first
        return Load(runs, federation.X.size, len(federation.hospitals) * self._parameters)

    def _run_alone(self, services: RunServices, in_process: bool, verbose: bool) -> Result:
        (entry,), (seed,) = self.entries, self.seeds
        checked = self._checked.get((entry, seed))
        data = self._rows_of(entry, seed).folder
        run = Run(entry, seed, data, self.folder, entry.label, nested=False, checked=checked)
        with run.opened(self.federations[seed], again=self._again) as opened:
            with services.ready(in_process, verbose, self._load(1), self._rounds(), self.remarks()):
                result = self._played(services, run, opened, None)
            opened.finish()
        return result

    def _run_all(
        self,
        services: RunServices,
        in_process: bool,
        verbose: bool,
        begin: Begin | None,
        conclude: Conclude,
        on_result: OnResult | None,
        kind: Kind,
    ) -> list[Result]:
        frozen = self.config.frozen()
        prints = {str(seed): federation.fingerprint for seed, federation in self.federations.items()}
        played = len(self.seeds) * (len(self.entries) + len(self.folds) * len(hosts(self.entries)))
        load = self._load(played + len(self._trials) * len(self._trial_seeds))
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
                trials, tried = self._play_trials(services, whole.manifest, parent)
                runs = [self._nested(entry, seed) for seed in self.seeds for entry in self.entries]
                results = []
                for run, result in self._play_all(services, runs, parent):
                    if isinstance(result, Result):
                        results.append(result)
                        whole.manifest.add(Manifest.read(run.folder))
                        if on_result is not None and services.actors is not None:
                            on_result(result)
                tuning.charge(results, tried)
                self.left_out = self._play_left_out(services, whole, parent, results)
                services.display.conclude()
                services.end_actors()
                with resume.writing(self.folder), csv_files.texts_for(len(self._first.hospitals)):
                    conclude(results, whole.manifest)
                manifest, said = whole.manifest, verdict(whole.manifest)
                figures = headlines(results) | taken(manifest, results)
                named = title(self.config.name, said)
                parent.done(figures, manifest.paths(), note(manifest, kind), named, said)
            whole.finish()
            folders = (*(each.folder for each in results), *(each.folder for each in self.left_out))
            for folder in (*trials, *folders):
                for name in (FINISHED, JUDGED):
                    (folder / name).unlink(missing_ok=True)
        return results

    def _play_trials(
        self, services: RunServices, out: Manifest, parent: Record
    ) -> tuple[list[Path], list[tuning.TrialResult]]:
        """Execute the trials, set each strategy to its best values; return the trials' folders and results."""
        if self._tune is None or not self._trials:
            return [], []
        trials = [(trial, seed) for trial in self._trials for seed in self._trial_seeds]
        runs = [self._nested(entries([trial.config])[0], seed, trial=True) for trial, seed in trials]
        tried = []
        for (trial, seed), (run, result) in zip(
            trials, self._play_all(services, runs, parent, TrainingDiverged), strict=True
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

    def _play_left_out(
        self, services: RunServices, whole: Opened, parent: Record, results: Sequence[Result]
    ) -> list[Judged]:
        """Execute every strategy and seed without the hospitals of every fold."""
        if not self.folds:
            return []
        together = 1 if services.actors is None else services.actors.count
        served = {result.label: tuple(result.outcome.figures) for result in results}
        runs = FoldRuns(
            self.config, self.folds, self.seeds, self.entries, self.folder, whole.ticket.id, together, served
        )
        return runs.judged(self._play_all(services, runs.runs, parent), whole.manifest)

    def _nested(self, entry: Entry, seed: int, *, trial: bool = False) -> Run:
        """Make a run of the comparison."""
        folder = self.folder / "runs" / folder_of(entry.label) / f"seed-{seed}"
        name, first = f"{entry.label}, seed {seed}", seed == self.seeds[0]
        checked = self._checked.get((entry, seed))
        return Run(entry, seed, self._rows_of(entry, seed).folder, folder, name, True, trial, first, checked)

    def _rows_of(self, entry: Entry, seed: int) -> Federation:
        """Return the federation that an entry's runs with ``seed`` train on."""
        if plugins.prepared_alike(entry.config, self.config):
            return self.federations[seed]
        if seed not in self._others:
            self._others[seed] = plugins.build_federation(entry.config, self._source, seed)
        return self._others[seed]

    def _play_all(
        self, services: RunServices, runs: Sequence[Run], parent: Record, spared: Spared = ()
    ) -> Iterator[tuple[Run, Result | Exception]]:
        """Execute runs of a comparison; yield each, in order, with its result.

        A run whose error has a type in ``spared`` is yielded with the error. Other errors are raised.
        """
        if services.actors is not None:
            listeners = [Listener(services, run, partial(self._data_of, run), parent) for run in runs]
            yield from listen(services.actors, listeners, self._again, spared)
            return
        for run in runs:
            run.prepare()
            try:
                with run.opened(self._data_of(run), again=self._again) as opened:
                    result = self._played(services, run, opened, parent)
                    opened.finish(result.outcome, models=bool(run.held))
            except spared as error:
                yield run, error
            else:
                yield run, result

    def _played(self, services: RunServices, run: Run, opened: Opened, parent: Record | None) -> Result:
        """Execute a run with this process's session."""
        federation = self._data_of(run)
        with (
            Listener(services, run, lambda: federation, parent) as listener,
            contextlib.closing(run.play(federation, opened, services.session, services.say)) as events,
        ):
            listener.begin(opened.ticket.id, opened.again)
            for event in events:
                if isinstance(event, Result):
                    listener.end(event, opened.manifest)
                    return event
                listener.round(event)
        raise RuntimeError("the run ended without a result")

    def _data_of(self, run: Run) -> Federation:
        """Return the federation that a run trains on; a fold's federation must exist already."""
        among = (*self.federations.values(), *self._others.values())
        known = (federation for federation in among if federation.folder == run.data)
        return Federation.open(run.data) if run.held else next(known)

    def job(self, seed: int) -> Job:
        """Return the job of the only strategy with ``seed``."""
        (entry,) = self.entries
        return self._nested(entry, seed).asked()

    def _check_first(self, entry: Entry, where: str) -> None:
        """Raise ``ConfigError`` if the entry cannot be run on the federation of the first seed."""
        seed = self.seeds[0]
        check_job(self._nested(entry, seed).asked(), self._rows_of(entry, seed), where)

    def _check(self) -> None:
        for seed, federation in self.federations.items():
            if self.config.system is not None:
                timing.check_target(self.config.system.target, federation.task)
            if seed in self._trial_seeds:
                tuning.check(federation)
            for i, entry in enumerate(self.entries):
                where = f"strategies.{i}" if len(self.entries) > 1 else "strategy"
                rows = self._rows_of(entry, seed)
                self._checked[entry, seed] = check_job(self._nested(entry, seed).asked(), rows, where)
                precision = entry.config.training.precision
                model = ModelSpec.of(entry.config.model).bind(rows, "cpu", precision)
                self._parameters = max(self._parameters, model.layout.size)
            for trial in self._trials if seed in self._trial_seeds else ():
                (tried,) = entries([trial.config])
                check_job(self._nested(tried, seed).asked(), self._rows_of(tried, seed), "tune")
