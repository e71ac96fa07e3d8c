"""Strategies x seeds on one configuration: from the checked configuration to files and MLflow.

Everything that can be wrong with the configuration or the data is found out before Ray starts and before anything is
written.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from raysim.config import plugins, reading
from raysim.config.schema import Config
from raysim.config.training import TuneSection
from raysim.core.errors import ConfigError, RaysimError, ResourceError, TrainingDiverged
from raysim.data.federation import Federation
from raysim.engine import timing
from raysim.engine.job import Job, Outcome, Result, Round, RunState
from raysim.engine.job_checks import check_job
from raysim.engine.messages import ModelSpec
from raysim.engine.reception.attack_checks import warnings
from raysim.engine.reception.promises import Terms, settled
from raysim.experiment import tuning
from raysim.experiment.entries import Entry, entries, folder_of
from raysim.experiment.jobs import make_job
from raysim.experiment.notes import headlines, note
from raysim.experiment.services import RunServices
from raysim.report.sections import privacy
from raysim.statistics.paired import FEW_HOSPITALS
from raysim.storage import resume
from raysim.storage.checkpoints import Checkpoints, Writer
from raysim.storage.file_store import check as check_file_store
from raysim.storage.manifest import Kind, Manifest
from raysim.storage.results import SPLIT, choose_folder, split_table, write_run
from raysim.storage.resume import Opened
from raysim.tracking.client import DATA_TAGS, RUN_TAG, check_reachable
from raysim.tracking.recording import Record

if TYPE_CHECKING:
    from raysim.adversaries.figures import AttackFigures


Conclude = Callable[[Sequence[Result], Manifest], None]
"""Makes of all results the files of the whole experiment."""

Begin = Callable[[Manifest], None]
"""Writes what a whole experiment needs to go on, beside its configuration."""


class Experiment:
    """A configuration checked against its data, to run with each of ``seeds`` and each of ``configs``.

    ``configs`` are whole, one a strategy. ``again``: what was stopped in folder ``out`` goes on there. ``tune``: what
    is tried first; the values that are chosen take the place of those in ``configs``.
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
        self._trials = [] if tune is None else tuning.trials(tune, configs)
        self._source = plugins.build_source(config.data)
        check_reachable(config.tracking.uri)
        if config.checkpoint.path is not None and config.checkpoint.every != 0:
            check_file_store(config.checkpoint.path)
        self.folder = choose_folder(out, config.name, again=again)
        self.federations = {seed: plugins.build_federation(config.data, self._source, seed) for seed in seeds}
        self._check()

    @classmethod
    def comparing(cls, config: Config, out: Path | None, *, again: bool = False) -> Experiment:
        """The strategies and seeds that a resolved configuration compares; ``out`` and ``again`` as above."""
        seeds = config.seeds or (config.seed,)
        experiment = cls(config, reading.compared(config), seeds, out, again=again, tune=config.tune)
        reading.check_reference(config.reference, [entry.label for entry in experiment.entries])
        return experiment

    def play(
        self,
        console: Console,
        *,
        in_process: bool,
        verbose: bool,
        begin: Begin | None = None,
        conclude: Conclude | None = None,
        kind: Literal["compare", "curve"] = "compare",
    ) -> list[Result]:
        """Run everything. Files are written and MLflow is told as each run ends; with ``conclude``, in nested runs of
        an experiment of this ``kind``.

        In a folder that goes on, what is finished is not run again.
        """
        services = RunServices(self.config, self._first, self.folder, console)
        try:
            if conclude is None:
                results = [self._run_alone(services, in_process, verbose)]
            else:
                results = self._run_all(services, in_process, verbose, begin, conclude, kind)
        except ConfigError:
            raise
        except BaseException:
            if (self.folder / resume.FILE).exists():
                services.say(f"stopped; 'raysim resume {self.folder}' goes on")
            raise
        if services.unsent is not None:
            services.say(services.unsent)
        return results

    def planned(self) -> list[Config]:
        """The configuration of each run of a seed, trials included."""
        return [*(trial.config for trial in self._trials), *(entry.config for entry in self.entries)]

    def remarks(self) -> list[str]:
        """What is to be known before the start: seeds that nobody named, and what strategies say of their settings on
        these hospitals, a line for each thing said, after their labels."""
        sizes = self._first.sizes("train")
        said: dict[str, list[str]] = {}
        for entry in self.entries:
            if remark := entry.strategy.remark(sizes):
                said.setdefault(remark, []).append(entry.label)
        doubts = [
            line
            for entry in self.entries
            for line in warnings(entry.config.adversary, entry.config.aggregation, len(sizes))
        ]
        seeds = []
        if self.config.seeds and "seeds" not in self.config.model_fields_set:
            named = ", ".join(map(str, self.seeds))
            seeds.append(
                f"seeds {named}: one shows no difference between strategies; --seed {self.seeds[0]} runs it alone"
            )
        remarks = (f"{', '.join(labels)}: {remark}" for remark, labels in said.items())
        return [*seeds, *remarks, *dict.fromkeys(doubts)]

    @property
    def _first(self) -> Federation:
        """The federation of the first seed; those of others have the same hospitals."""
        return next(iter(self.federations.values()))

    def _rounds(self) -> int:
        """The rounds of all runs, trials included."""
        return sum(config.training.rounds for config in self.planned()) * len(self.seeds)

    def _run_alone(self, services: RunServices, in_process: bool, verbose: bool) -> Result:
        (entry,), (seed,) = self.entries, self.seeds
        with self._opened(entry, seed, self.folder) as run:
            with services.ready(in_process, verbose, 1, self._rounds(), self.remarks()):
                result = self._run(services, entry, seed, run, entry.label, None)
            run.finish()
        return result

    def _run_all(
        self,
        services: RunServices,
        in_process: bool,
        verbose: bool,
        begin: Begin | None,
        conclude: Conclude,
        kind: Kind,
    ) -> list[Result]:
        frozen, results = self.config.frozen(), []
        prints = {str(seed): federation.fingerprint for seed, federation in self.federations.items()}
        count = (len(self.entries) + len(self._trials)) * len(self.seeds)
        with resume.opened(kind, self.folder, frozen, self._first, prints, again=self._again) as whole:
            if begin is not None:
                with resume.writing(self.folder):
                    begin(whole.manifest)
            tags = {RUN_TAG: whole.ticket.id} | self._data_tags(self._first)
            with (
                services.ready(in_process, verbose, count, self._rounds(), self.remarks()),
                services.recorder.run(self.config.name, frozen, tags, again=whole.again) as parent,
            ):
                tried = self._try(services, whole.manifest, parent)
                for entry, seed in [(entry, seed) for seed in self.seeds for entry in self.entries]:
                    with self._opened(entry, seed, self._folder(entry, seed)) as run:
                        results.append(self._run(services, entry, seed, run, f"{entry.label}, seed {seed}", parent))
                        run.finish(results[-1].outcome)
                        whole.manifest.add(run.manifest)
                services.display.conclude()
                with resume.writing(self.folder):
                    conclude(results, whole.manifest)
                parent.done(headlines(results), whole.manifest.paths(), note(whole.manifest, kind))
            whole.finish()
            for folder in (*tried, *(result.folder for result in results)):
                (folder / resume.FINISHED).unlink(missing_ok=True)
        return results

    def _try(self, services: RunServices, out: Manifest, parent: Record) -> list[Path]:
        """Run the trials, and let strategies take what was best; returns the folders of the trials' runs."""
        if self._tune is None:
            return []
        tried, folders = [], []
        for trial in self._trials:
            (entry,) = entries([trial.config])
            for seed in self.seeds:
                folders.append(self._folder(entry, seed))
                try:
                    with self._opened(entry, seed, folders[-1]) as run:
                        outcome = self._run(services, entry, seed, run, f"{entry.label}, seed {seed}", parent).outcome
                        run.finish(outcome)
                except TrainingDiverged:
                    tried.append(tuning.Tried(trial, math.inf))
                    continue
                moved = outcome.traffic
                figure = tuning.figure(outcome, self.federations[seed])
                tried.append(tuning.Tried(trial, figure, moved.down, moved.up))
        table = tuning.table(self._tune, tried)
        out.csv(tuning.FILE, table)
        values = tuning.chosen(self._tune, table)
        self.entries = entries([tuning.with_values(entry.config, values[entry.label]) for entry in self.entries])
        return folders

    def _data_tags(self, federation: Federation) -> dict[str, str]:
        return dict(zip(DATA_TAGS, (self.config.data.source, federation.fingerprint), strict=True))

    def _folder(self, entry: Entry, seed: int) -> Path:
        return self.folder / "runs" / folder_of(entry.label) / f"seed-{seed}"

    def _opened(self, entry: Entry, seed: int, folder: Path) -> contextlib.AbstractContextManager[Opened]:
        federation = self.federations[seed]
        return resume.opened(
            "run", folder, self._frozen(entry, seed), federation, federation.fingerprint, again=self._again
        )

    def job(self, seed: int) -> Job:
        """The job of the only strategy with ``seed``."""
        (entry,) = self.entries
        return self._job(entry, seed)

    def _frozen(self, entry: Entry, seed: int) -> dict[str, Any]:
        """The configuration of a run as it is written."""
        return self._settled(entry, seed).of_run(seed).frozen_run()

    def _settled(self, entry: Entry, seed: int) -> Config:
        """The configuration of an entry's run, with what its guarantee of privacy needs or comes to."""
        if entry.config.privacy is None:
            return entry.config
        terms = Terms.of(self._job(entry, seed), self.federations[seed])
        return entry.config.replaced(privacy=settled(entry.config.privacy, terms))

    def _job(self, entry: Entry, seed: int) -> Job:
        return make_job(entry.config, entry.strategy, entry.selection, self.federations[seed].folder, seed)

    def _check(self) -> None:
        for seed, federation in self.federations.items():
            if self.config.system is not None:
                timing.check_target(self.config.system.target, federation.task)
            if self._tune is not None:
                tuning.check(federation)
            for i, entry in enumerate(self.entries):
                where = f"strategies.{i}" if len(self.entries) > 1 else "strategy"
                check_job(self._job(entry, seed), federation, where)
                ModelSpec.of(entry.config.model).bind(federation, "cpu", entry.config.training.precision)
            for trial in self._trials:
                (tried,) = entries([trial.config])
                check_job(self._job(tried, seed), federation, "tune")

    def _run(
        self, services: RunServices, entry: Entry, seed: int, run: Opened, name: str, parent: Record | None
    ) -> Result:
        # Only now: pages and plots take a second to import, which Ray's start hides.
        from raysim.experiment.comparison import write_run_page

        federation, began = self.federations[seed], time.perf_counter()
        frozen = self._frozen(entry, seed)
        evaluation, precision = entry.config.evaluation, entry.config.training.precision
        tags = {"strategy": entry.label, "seed": str(seed), RUN_TAG: run.ticket.id} | self._data_tags(federation)
        if entry.config.privacy is not None:
            tags["privacy"] = f"{entry.config.privacy.unit}, {entry.config.privacy.way}"
        services.display.begin(name, entry.config.training.rounds)
        with services.recorder.run(name, frozen, tags, parent, again=run.again) as record:
            finished = run.finished()
            outcome = finished or self._outcome(services, entry, seed, run, name, record)
            if outcome.attack is None and entry.config.adversary is not None:
                outcome.attack = self._attacked(services, self._job(entry, seed), outcome, federation)
            result = Result(
                entry.label,
                entry.strategy.yardstick,
                seed,
                federation,
                outcome,
                run.folder,
                entry.title,
                entry.strategy.alone,
            )
            if finished:
                services.tell(record, finished.rounds)
            else:
                with resume.writing(run.folder):
                    write_run(run.manifest, federation, outcome, frozen, evaluation, precision, self.config.system)
                    if parent is None:  # a comparison has one file of all its splits
                        run.manifest.rows(SPLIT, split_table(federation))
                    whole = None if parent is None else self.folder
                    write_run_page(run.manifest, result, frozen, evaluation.part, whole)
            model, headline = list(outcome.metrics.items())[-1]
            timed = timing.figures(outcome, self.config.system, federation.task)
            setup = {"bytes_setup_down": outcome.setup.down, "bytes_setup_up": outcome.setup.up}
            figures = {**headline, **timed, **setup, **privacy.figures(outcome.privacy)}
            record.done(figures, run.manifest.paths(), note(run.manifest, "run"))
        kind, mean = federation.task, headline[federation.task.headline]
        digits = kind.decimals(mean) + 1
        last = "worst decile" if headline["hospitals"] >= FEW_HOSPITALS else f"{kind.worst} hospital"
        services.display.end(
            time.perf_counter() - began,
            f"{model} mean {kind.title} {mean:.{digits}f}, {last} {headline['worst_decile']:.{digits}f}",
        )
        if outcome.attack is not None:
            from raysim.report.sections import attacks

            services.say(attacks.sentence(outcome.attack, kind.title))
        if outcome.privacy is not None:
            services.say(f"privacy: {outcome.privacy.sentence()}")
        return result

    def _attacked(self, services: RunServices, job: Job, outcome: Outcome, federation: Federation) -> AttackFigures:
        """What the attack of a run changed; where the configuration says so, beside the same run without it."""
        from raysim.engine.reception.attack_figures import attack_figures

        clean = None
        if job.adversary is not None and job.adversary.baseline:
            quiet = replace(job, adversary=None, evaluation=job.evaluation.model_copy(update={"every": 0}))
            *_, last = services.session.run(quiet, None, 0, services.say)
            clean = last if isinstance(last, Outcome) else None
        return attack_figures(job, outcome, clean, federation)

    def _outcome(
        self, services: RunServices, entry: Entry, seed: int, run: Opened, name: str, record: Record
    ) -> Outcome:
        """Play a run from its start or its last checkpoint, telling of its rounds and keeping its checkpoints."""
        section, since, outcome = self.config.checkpoint, None, None
        config = self._settled(entry, seed)
        job = make_job(config, entry.strategy, entry.selection, self.federations[seed].folder, seed)
        checkpoints = Checkpoints(run.ticket.checkpoints, section.keep, run.ticket.fingerprint, entry.strategy)
        if run.again:
            since, damaged = checkpoints.latest()
            where = f"round {since.round} of {entry.config.training.rounds}" if since else "the start"
            services.say("; ".join([*damaged, f"{name} goes on from {where}"]))
            if since is not None and since.history is not None:
                services.tell(record, since.history.rounds[:-1])
        goes_on = False
        with Writer(checkpoints) as writer:
            try:
                for event in services.session.run(job, since, section.every, services.say):
                    goes_on = True
                    if isinstance(event, Round):
                        services.tell(record, [event])
                    elif isinstance(event, RunState):
                        writer.offer(event)
                    else:
                        outcome = event
            except RaysimError as error:
                if not (since or writer.round or isinstance(error, ResourceError)):
                    run.forget()  # it would end so again
                raise
            except Exception as error:
                if since is None or goes_on:
                    raise
                raise ConfigError(
                    f"{run.ticket.checkpoints}: the checkpoint of round {since.round} cannot be gone on from "
                    f"({type(error).__name__}: {error}); remove it, then the one before it is used"
                ) from error
        if outcome is None:
            raise RuntimeError("the coordinator ended without an outcome")
        return outcome
