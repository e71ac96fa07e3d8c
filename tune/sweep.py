"""A sweep from its file to its folder: plan, trials, choice, and metrics on test rows."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from raysim.config import plugins
from raysim.config.reading import Source, read_tree
from raysim.config.schema import Config
from raysim.core.atomic import remove_stray
from raysim.core.errors import ConfigError, ResourceError
from raysim.core.importing import standing_here
from raysim.core.words import counted
from raysim.data.federation import Federation
from raysim.engine.job import Outcome, Result
from raysim.experiment.notes import observed_over_expected
from raysim.experiment.scores import unread
from raysim.experiment.services import STARTING
from raysim.experiment.session import Session, longest_silence
from raysim.experiment.unseen.folds import refuse
from raysim.report.terminal.progress import data_warnings, phase, say, size_in_words
from raysim.storage.manifest import Manifest
from raysim.storage.results import SPLIT, choose_folder, write_run
from raysim.storage.resume import held
from raysim.storage.run_tables import split_table
from raysim.tracking.names import TOP
from raysim.tracking.stores import check_reachable
from raysim.tune import results
from raysim.tune.choice import Choice, choose, reason
from raysim.tune.guarantee import LOST, cost, read_cost, read_lost
from raysim.tune.journal import JOURNAL, Journal, digest, working
from raysim.tune.plan import SweepPlan, make_plan
from raysim.tune.running.places import Places, open_places
from raysim.tune.running.progress import SweepProgress
from raysim.tune.tracking import Conclusion, SweepTracker
from raysim.tune.trial import figures, headline

DONE, FAILED, INTERRUPTED = 0, 3, 130
"""Exit codes: all trials ended well, some trials failed, or the sweep was stopped before all had ended."""


def begin(source: Source, overrides: Sequence[str], out: Path | None, console: Console, *, verbose: bool) -> int:
    """Run the command ``raysim sweep`` and return the exit code."""
    with phase(console, "reading data"):
        plan, config = make_plan(read_tree(source, overrides))
    refuse(config, "sweep")
    for line in unread(config, "sweep"):
        say(console, line)
    check_reachable(config.tracking.uri)
    folder = choose_folder(out, config.name)
    with held(folder):
        if (folder / JOURNAL).exists():
            raise ConfigError(
                f"--out: {folder} holds a sweep; continue with 'raysim resume {folder}' or name another folder"
            )
        results.write_sweep(manifest := Manifest.begin(folder, "sweep"), plan, config)
        return SweepRun(manifest, plan, config, console).run(verbose=verbose)


def go_on(folder: Path, console: Console, *, failed: bool, verbose: bool) -> int:
    """Continue the sweep in ``folder`` (``raysim resume``), and return the exit code. With ``failed``, failed trials
    are run again.
    """
    if not is_sweep(folder):
        raise ConfigError(f"{folder}: is not the folder of a sweep; it has no sweep.yaml and journal.jsonl")
    folder = folder.absolute()
    begun = working(folder)
    # Relative paths start from the working folder of the first command; modules are found in the current one.
    with held(folder), standing_here((begun, folder)), contextlib.chdir(begun):
        remove_stray(folder)
        out = Manifest.read(folder)
        with phase(console, "reading data"):
            plan, config = make_plan(read_tree(folder / "sweep.yaml"))
        run = SweepRun(out, plan, config, console)
        if failed:
            run.forget_failed()
        run.count_lost()
        return run.run(verbose=verbose)


def is_sweep(folder: Path) -> bool:
    """Whether ``folder`` contains a sweep that was begun."""
    return (folder / "sweep.yaml").is_file() and (folder / JOURNAL).is_file()


class SweepRun:
    """A sweep that is run or continued."""

    def __init__(self, out: Manifest, plan: SweepPlan, config: Config, console: Console) -> None:
        self._out = out
        self._folder = folder = out.folder
        self._plan = plan
        self._config = config
        self._console = console
        self._federations = {seed: Federation.open(at) for seed, at in plan.folders.items()}
        data = [federation.fingerprint for federation in self._federations.values()]
        header = {"sweep": digest(folder / "sweep.yaml"), "data": data, "working": os.getcwd()}
        self._journal = Journal(folder, header)
        self._total = plan.trials()
        self._finals: list[Outcome] = []
        self._events = None if config.hides_sizes else results.validation_events(self._federations.values())

    def forget_failed(self) -> None:
        """Remove failed trials from memory, so that they are run again."""
        failed = [number for number, trial in self._journal.trials.items() if trial.status == "failed"]
        for number in failed:
            del self._journal.trials[number]

    def run(self, *, verbose: bool) -> int:
        """Run the trials that have not ended, write all files of the sweep, and return the exit code."""
        try:
            return self._run(verbose)
        except ConfigError:
            raise
        except BaseException as error:
            # Resuming does not help if no trial has ended and the machine or cluster lacks a resource.
            if self._journal.trials or not isinstance(error, ResourceError):
                self._line(
                    f"stopped after {len(self._journal.trials)} of {self._total} trials; "
                    f"continue with 'raysim resume {self._folder}'"
                )
            raise

    def _run(self, verbose: bool) -> int:
        plan, config, journal = self._plan, self._config, self._journal
        first = next(iter(self._federations.values()))
        with SweepTracker(self._folder, plan, config, first.fingerprint) as tracker:
            tracker.catch_up(journal.trials.values())
            choice = choose(journal.trials, plan.sweep)
            tested = self._tested_before(choice)
            tested_before = tested is not None
            if tested is None:
                with contextlib.ExitStack() as standing:
                    with phase(self._console, STARTING):
                        opened = open_places(plan, config.resources, first, max(self._left, 1), verbose)
                        places = standing.enter_context(opened)
                    self._announce(first, places)
                    # Imported late: Ray must first be configured to listen on this machine only.
                    from raysim.tune.running.driver import drive

                    try:
                        with SweepProgress(self._console, plan.sweep, self._total, journal.trials.values()) as display:
                            silence = longest_silence(config.resources)
                            drive(plan, config, places, journal, self._folder, [display, tracker], silence)
                    finally:
                        choice = choose(journal.trials, plan.sweep)
                        results.write_tables(self._out, journal.trials, choice)
                    if self._ended:
                        with phase(self._console, "testing the recommended trial"):
                            tested = self._test(places.session, choice)
            tree = results.summary(choice, journal.trials, self._total, tested, self._events)
            guaranteed, privacy = self._cost(tested_before), ""
            if guaranteed is not None:
                tree["privacy"], privacy = guaranteed, str(guaranteed["statement"])
                self._line(f"privacy: {privacy}")
            self._out.json("summary.json", tree)
            results.write_recommended(self._out, plan, choice)
            of = (config.name, plan, choice, journal.trials, tested)
            counted = not config.hides_sizes
            with phase(self._console, "drawing pictures"):
                results.write_page(
                    self._out, *of, counted=counted, events=self._events, mlflow=tracker.address, privacy=privacy
                )
            if self._ended:
                figures = {"hypervolume": choice.hypervolume, "pareto": float(choice.front.sum())}
                if tested:
                    figures |= {f"test_{name}": mean for name, (mean, _) in tested.items()}
                    # As for a single run, because the table of all runs has these columns.
                    figures |= {name: mean for name, (mean, _) in tested.items() if name in TOP}
                    ratios = [observed_over_expected(outcome) for outcome in self._finals]
                    figures["observed_over_expected"] = sum(ratios) / len(ratios) if ratios else math.nan
                members = {trial.number: bool(on) for trial, on in zip(choice.trials, choice.front, strict=True)}
                spent = [f"Privacy: {privacy}."] if privacy else []
                note = "\n\n".join([*reason(choice), *spent, f"Files: `{self._folder.absolute()}`"])
                best = None if choice.recommended is None else choice.recommended.number
                tracker.conclude(Conclusion(members, best, figures, self._out.paths(), note))
        self._say(tracker)
        if not self._ended:
            return INTERRUPTED
        return FAILED if any(trial.status == "failed" for trial in journal.trials.values()) else DONE

    @property
    def _ended(self) -> bool:
        return self._left <= 0

    def _tested_before(self, choice: Choice) -> Mapping[str, tuple[float, float]] | None:
        """Return the recommended trial's metrics on test rows if an earlier command has stored them, else None."""
        path = self._folder / "summary.json"
        if not self._ended or not path.exists():
            return None
        return results.read_tested(path, choice)

    def _cost(self, tested_before: bool) -> dict[str, Any] | None:
        """Return the joint privacy guarantee of all runs of the sweep; None if there is none.

        If each attempt of a trial draws new noise, every attempt counts. If ``tested_before``, the stored guarantee is
        returned.
        """
        if tested_before:
            return read_cost(self._folder / "summary.json")
        trials, finals = self._journal.trials.values(), [each.privacy for each in self._finals if each.privacy]
        redraws = self._redraws_noise()
        params = [trial.params for trial in trials for _ in range(trial.attempts if redraws else 1)]
        lost = read_lost(self._folder) if redraws else 0
        return cost(self._plan, params, [*self._federations.values()], finals, lost)

    def _redraws_noise(self) -> bool:
        return any(
            job.redraws_noise for _, params in self._plan.space.corners() for job in self._plan.jobs(params, "test")
        )

    def count_lost(self) -> None:
        """Store how many trials may have run without a record; the privacy guarantee counts these trials.

        Nothing is stored if all attempts of a trial have the same noise.
        """
        if self._redraws_noise():
            again = self._left * (1 + self._plan.sweep.retries) + (0 if (self._folder / "summary.json").exists() else 1)
            self._out.json(LOST, {"trials": read_lost(self._folder) + again})

    @property
    def _left(self) -> int:
        return self._total - len(self._journal.trials)

    def _announce(self, federation: Federation, places: Places) -> None:
        session = places.session
        if session.warning:
            say(self._console, f"warning: {session.warning}")
        seeds = len(self._plan.seeds)
        say(
            self._console,
            f"{size_in_words(federation, self._config)}; {places.where}; "
            f"{counted(self._left, 'trial')} of {counted(seeds, 'seed')}, "
            f"searcher {self._plan.sweep.searcher}, scheduler {self._plan.sweep.scheduler.name}",
        )
        if session.dashboard:
            self._line(f"dashboard: {session.dashboard}")
        for line in data_warnings(self._federations.values(), self._config.privacy is not None):
            say(self._console, line)
        self._warn()

    def _warn(self) -> None:
        if few := results.few_events(self._events):
            say(self._console, f"warning: {few}")

    def _test(self, session: Session, choice: Choice) -> Mapping[str, tuple[float, float]] | None:
        """Evaluate the recommended trial on test rows, one run for each seed.

        Return the mean and standard deviation over seeds of each metric; None without a recommended trial.
        """
        if choice.recommended is None:
            return None
        # Imported late: pages and plots take a second to import.
        from raysim.experiment.run_page import write_run_page

        params = choice.recommended.params
        config = self._plan.config(params, "test")
        label, precision = plugins.label(config.strategy), config.training.precision
        finals, rounds = [], {}
        for job, (seed, federation) in zip(self._plan.jobs(params, "test"), self._federations.items(), strict=True):
            *_, outcome = session.run(job)
            assert isinstance(outcome, Outcome)
            folder = self._folder / "recommended" / f"seed-{seed}"
            frozen = self._plan.frozen(params, seed)
            out = Manifest.begin(folder, "run")
            write_run(out, federation, outcome, frozen, config.evaluation, precision, config.system)
            run = Result(label, job.strategy.is_reference, seed, federation, outcome, folder)
            if outcome.noisy_sizes is None:
                out.rows(SPLIT, split_table(federation))
            write_run_page(out, run, frozen, config)
            self._out.add(out)
            finals.append(headline(outcome.metrics))
            self._finals.append(outcome)
            rounds[seed] = outcome.rounds
        return figures(finals, rounds)

    def _say(self, tracker: SweepTracker) -> None:
        if not self._ended:
            left = f"continue with 'raysim resume {self._folder}'"
            self._line(f"stopped after {len(self._journal.trials)} of {self._total} trials; {left}")
        failed = sum(trial.status == "failed" for trial in self._journal.trials.values())
        if failed:
            self._line(f"{failed} of {self._total} trials failed; trials.csv has their errors")
        if tracker.pending:
            self._line(
                f"warning: MLflow ({self._config.tracking.uri}) did not accept {tracker.pending} records: "
                f"{tracker.error}; they are stored in the folder, and 'raysim resume {self._folder}' sends them"
            )

    def _line(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, highlight=False, markup=False)
