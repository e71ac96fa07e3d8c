"""Strategies x seeds on one configuration: from the checked configuration to files and MLflow.

Everything that can be wrong with the configuration or the data is found out before Ray starts and before anything is
written.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from raysim import config as configuration
from raysim.config import Config, StrategySection
from raysim.coordinator import Job, Round, check_job
from raysim.data.build import build as build_federation
from raysim.errors import ConfigError
from raysim.messages import ModelSpec, Work
from raysim.progress import Display
from raysim.recording import Record, Recorder
from raysim.results import Result, choose_folder, write_run
from raysim.session import Session, open_session
from raysim.tracking import check_reachable
from raysim.training.base import Optimizer
from strategies.base import Selection, Strategy


@dataclass(frozen=True, eq=False)
class Entry:
    """A strategy of an experiment under its label."""

    label: str
    section: StrategySection
    strategy: Strategy


Conclude = Callable[[Sequence[Result]], tuple[Mapping[str, float], Sequence[Path]]]
"""Makes of all results the figures and files of the whole experiment."""


class Experiment:
    """A configuration checked against its data, to run ``chosen`` strategies with each of ``seeds``."""

    def __init__(
        self, config: Config, chosen: Sequence[StrategySection], seeds: Sequence[int], out: Path | None
    ) -> None:
        self.config = config
        self.seeds = seeds
        self.entries = _entries(chosen, "strategies" if config.strategies else "strategy")
        self._selection: Selection = configuration.build_selection(config.selection)
        self._source = configuration.build_source(config.data)
        check_reachable(config.tracking.uri)
        self.folder = choose_folder(out, config.name)
        self.federations = {
            seed: build_federation(self._source, config.data.split, config.data.preprocessing, seed) for seed in seeds
        }
        self._check()

    def play(
        self, console: Console, *, in_process: bool, verbose: bool, conclude: Conclude | None = None
    ) -> list[Result]:
        """Run everything. Files are written and MLflow is told as each run ends; with ``conclude``, in nested runs."""
        rows = next(iter(self.federations.values())).totals
        results = []
        with contextlib.ExitStack() as stack:
            recorder = stack.enter_context(Recorder(self.config.tracking, verbose))
            parent = None
            if conclude is not None:
                parent = stack.enter_context(recorder.run(self.config.name, self.config.frozen(), {}))
            session = stack.enter_context(
                open_session(rows, self.config.resources, in_process=in_process, verbose=verbose)
            )
            self._announce(console, session)
            jobs = [(entry, seed) for seed in self.seeds for entry in self.entries]
            display = stack.enter_context(Display(console, len(jobs), self.config.training.rounds))
            for entry, seed in jobs:
                name = entry.label if conclude is None else f"{entry.label}, seed {seed}"
                folder = self.folder
                if conclude is not None:
                    folder = self.folder / "runs" / re.sub(r"[^\w.-]+", "_", entry.label) / f"seed-{seed}"
                tags = {"strategy": entry.label, "seed": str(seed), "data": self.federations[seed].fingerprint}
                display.begin(name)
                with recorder.run(name, self.frozen(entry, seed), tags, parent) as record:
                    results.append(self._run(session, entry, seed, folder, record, display))
            if conclude is not None and parent is not None:
                parent.done(*conclude(results))
        return results

    def frozen(self, entry: Entry, seed: int) -> dict[str, Any]:
        """The complete configuration of one run, defaults of plug-ins included; ``raysim run`` takes it as it is."""
        tree = self.config.model_copy(update={"strategy": entry.section, "seed": seed}).frozen()
        for key in ("strategies", "seeds", "reference"):
            tree.pop(key, None)
        for key, plugin in (("strategy", entry.strategy), ("selection", self._selection), ("data", self._source)):
            tree[key] |= configuration.fields_of(plugin)
        return tree

    def _job(self, entry: Entry, seed: int) -> Job:
        return make_job(self.config, entry.strategy, self._selection, self.federations[seed].folder, seed)

    def _check(self) -> None:
        for seed, federation in self.federations.items():
            for entry in self.entries:
                check_job(self._job(entry, seed), federation)
            ModelSpec.of(self.config.model).bind(federation, "cpu", self.config.training.precision)

    def _run(self, session: Session, entry: Entry, seed: int, folder: Path, record: Record, display: Display) -> Result:
        # Only now: pages and plots take a second to import, which Ray's start hides.
        from raysim.comparison import write_run_page

        federation, began, outcome = self.federations[seed], time.perf_counter(), None
        for event in session.run(self._job(entry, seed)):
            if isinstance(event, Round):
                display.round(event)
                record.round(event)
            else:
                outcome = event
        if outcome is None:
            raise RuntimeError("the coordinator ended without an outcome")
        frozen = self.frozen(entry, seed)
        write_run(folder, federation, outcome, frozen, self.config.evaluation.part, self.config.training.precision)
        model, headline = list(outcome.metrics.items())[-1]
        result = Result(entry.label, entry.strategy.yardstick, seed, federation, outcome, folder)
        write_run_page(folder, result, frozen, self.config.evaluation.part)
        record.done(headline, sorted(folder.iterdir()))
        display.end(
            time.perf_counter() - began,
            f"{model} mean AUROC {headline['auroc']:.4f}, worst decile {headline['worst_decile']:.4f}",
        )
        return result

    def _announce(self, console: Console, session: Session) -> None:
        federation = next(iter(self.federations.values()))
        if session.warning:
            console.print(f"warning: {session.warning}", highlight=False, markup=False)
        console.print(
            f"{len(federation.hospitals)} hospitals, {int(federation.totals.sum()):,} rows, "
            f"{federation.X.shape[1]} features; {session.where}",
            highlight=False,
        )


def make_job(config: Config, strategy: Strategy, selection: Selection, federation: Path, seed: int) -> Job:
    """The job of one run: what ``config`` says, with ``strategy`` on the federation in a folder."""
    training = config.training
    return Job(
        work=Work(
            federation=str(federation),
            model=ModelSpec.of(config.model),
            optimizer=Optimizer(training.optimizer, training.learning_rate, training.batch_size),
            epochs=training.local_epochs,
            seed=seed,
            precision=training.precision,
        ),
        strategy=strategy,
        selection=selection,
        rounds=training.rounds,
        evaluation=config.evaluation,
    )


def _entries(sections: Sequence[StrategySection], where: str) -> list[Entry]:
    """Strategies built and checked; their labels must differ."""
    built: dict[str, Entry] = {}
    for i, section in enumerate(sections):
        field = where if where == "strategy" else f"{where}.{i}"
        label = configuration.label(section)
        if label in built:
            raise ConfigError(f"{field}.label: '{label}' stands for two strategies; give one of them another label")
        built[label] = Entry(label, section, configuration.build_strategy(section, field))
    return list(built.values())
