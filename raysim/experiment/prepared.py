"""The preparation of runs: a configuration is checked against its data before Ray starts or a file is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from raysim.config import learners, plugins, reading
from raysim.config.schema import Config
from raysim.config.sections.training import TuneSection
from raysim.data.federation import Federation
from raysim.engine import timing
from raysim.engine.attacks.checks import warnings
from raysim.engine.job import Job
from raysim.engine.messages.plan import ModelSpec
from raysim.engine.privacy.noisy_statistics import left_out
from raysim.engine.server.job_checks import check_job
from raysim.experiment import idle_keys, tuning
from raysim.experiment.entries import Entry, entries, folder_of
from raysim.experiment.one_run import Run
from raysim.experiment.pairs import Unpaired, going_together, sentences
from raysim.experiment.run_placement import Load
from raysim.experiment.scores import check as check_scores
from raysim.experiment.unseen.fold_runs import hosts
from raysim.experiment.unseen.folds import check as check_folds
from raysim.experiment.unseen.folds import cost, folds_of
from raysim.experiment.unseen.rows import Judged
from raysim.report.terminal.progress import data_warnings
from raysim.storage.file_store import check as check_file_store
from raysim.storage.results import choose_folder
from raysim.tracking.stores import check_reachable


class Prepared:
    """An experiment that was checked against its data. Each of ``configs`` is to be run with each of ``seeds``.

    - ``configs``: complete configurations, one for each strategy.
    - ``again``: whether to resume the stopped experiment in folder ``out``.
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
        """The pairs of strategy and model that are left out because they cannot be combined. Only an experiment that
        combines all strategies with all models has such pairs."""
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
        """For each seed, a federation with the rows of the one in ``federations``. Its columns are prepared for models
        that need another preparation than the configuration's own model."""
        self.left_out: list[Judged] = []
        """The predictions for hospitals that were left out of training; empty until the runs without these hospitals
        have ended."""
        self._parameters = 0  # the size of the largest model
        self._checked: dict[tuple[Entry, int], Job] = {}
        if any(entry.strategy_label != entry.label for entry in self.entries):
            self.entries, self.unpaired = going_together(self.entries, self._check_first)
        tuned = [
            each.config
            for each in self.entries
            if each.strategy.uses_training() or (tune is not None and tune.tries_models(each.learner))
        ]
        self._trials = [] if tune is None else tuning.trials(tune, tuned)
        self._check()

    @classmethod
    def comparing(cls, config: Config, out: Path | None, *, again: bool = False) -> Self:
        """Prepare the strategies and seeds that a resolved configuration compares.

        ``again`` resumes the comparison that was stopped in the folder ``out``.
        """
        seeds = config.seeds or (config.seed,)
        check_folds(config)
        idle_keys.check_comparison(config)
        experiment = cls(config, reading.compared(config), seeds, out, again=again, tune=config.tune)
        labels = [entry.label for entry in experiment.entries]
        experiment.config = config.replaced(reference=learners.reference_among(config, labels))
        check_scores(experiment._first, labels)
        return experiment

    def remarks(self) -> list[str]:
        """Return remarks to print before the runs start.

        Strategies with the same remark share a line, which begins with their labels.
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
        """The federation of the first seed."""
        return next(iter(self.federations.values()))

    def _rounds(self) -> int:
        """Return the number of rounds of all runs, including trials and runs that leave hospitals out."""
        tried = sum(plugins.rounds(trial.config) for trial in self._trials) * len(self._trial_seeds)
        seeds, again = len(self.seeds), hosts(self.entries) if self.folds else ()
        once = sum(plugins.rounds(entry.config) for entry in self.entries)
        return tried + seeds * (once + len(self.folds) * sum(plugins.rounds(entry.config) for entry in again))

    def _load(self, runs: int) -> Load:
        federation = self._first
        return Load(runs, federation.X.size, len(federation.hospitals) * self._parameters)

    def job(self, seed: int) -> Job:
        """Return the job for ``seed``. The configuration must have exactly one strategy."""
        (entry,) = self.entries
        return self._nested(entry, seed).asked()

    def _nested(self, entry: Entry, seed: int, *, trial: bool = False) -> Run:
        """Prepare the run of one strategy and seed."""
        folder = self.folder / "runs" / folder_of(entry.label) / f"seed-{seed}"
        name, first = f"{entry.label}, seed {seed}", seed == self.seeds[0]
        checked = self._checked.get((entry, seed))
        return Run(entry, seed, self._rows_of(entry, seed).folder, folder, name, True, trial, first, checked)

    def _rows_of(self, entry: Entry, seed: int) -> Federation:
        """Return the data of one strategy and seed."""
        if plugins.prepared_alike(entry.config, self.config):
            return self.federations[seed]
        if seed not in self._others:
            self._others[seed] = plugins.build_federation(entry.config, self._source, seed)
        return self._others[seed]

    def _data_of(self, run: Run) -> Federation:
        """Return the data of a run."""
        among = (*self.federations.values(), *self._others.values())
        known = (federation for federation in among if federation.folder == run.data)
        return Federation.open(run.data) if run.held else next(known)

    def _check_first(self, entry: Entry, where: str) -> None:
        """Raise ``ConfigError``, which names the key ``where``, if ``entry`` cannot be run on the first seed's data."""
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
