"""The plan of a sweep, which is checked against its data and has what trials need."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from raysim.config import last_steps, plugins
from raysim.config.overrides import laid_over
from raysim.config.reading import checked, resolve
from raysim.config.schema import Config
from raysim.core.errors import ConfigError, RaysimError
from raysim.core.streams import stream
from raysim.core.words import as_yaml
from raysim.data.federation import Federation
from raysim.engine import timing
from raysim.engine.job import Job
from raysim.engine.server.job_checks import check_job
from raysim.experiment import idle_keys
from raysim.experiment.jobs import make_job
from raysim.strategies.base import Selection, Strategy
from raysim.tune.settings import Pbt, Sweep, fitted, read_sweep
from raysim.tune.spaces import Dimension, Params, Space, parse

Part = Literal["validation", "test"]
Built = tuple[Config, Strategy, Selection]
"""The configuration of a trial, with its strategy and selection."""

TRIED = 32
"""The number of random points of the search space that are checked before the sweep starts, besides the ends of
ranges."""


@dataclass(frozen=True)
class SweepPlan:
    """A checked sweep: its configuration, its search space, and the folder of each seed's data."""

    tree: Mapping[str, Any]
    """The configuration without the section ``sweep``."""
    sweep: Sweep
    folders: Mapping[int, Path]
    parameters: int = 0
    """The number of parameters of the largest model among the checked trials; 0 before the check."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """Return the seeds with which every trial runs."""
        return tuple(self.folders)

    @property
    def space(self) -> Space:
        """Return the parsed search space."""
        return parse(self.sweep.space)

    def config(self, params: Params, part: Part) -> Config:
        """Return the configuration of a trial with hyper-parameters ``params``; ``part`` says on which rows it is
        evaluated."""
        config = checked(laid_over(self.tree, {**params, "evaluation.part": part}, "sweep.space."))
        plugins.check_written_out(config.strategy, "strategy")
        if part == "validation":
            config = config.replaced(strategy=last_steps.judged_before(config.strategy, "strategy"))
        if "selection.name" in params:  # not every selection takes a fraction and a minimum
            config = config.replaced(selection=plugins.fitting_selection(config.selection))
        return resolve(config)

    def built(self, params: Params, part: Part) -> Built:
        """Return a trial's configuration, strategy and client sampling, without reading data."""
        config = self.config(params, part)
        strategy = plugins.build_strategy(config.strategy, model=config.model)
        return config, strategy, plugins.build_selection(config.selection)

    def jobs(self, params: Params, part: Part) -> list[Job]:
        """Return the runs of a trial, one for each seed.

        If ``part`` is "test", they equal the runs of ``raysim run`` with the trial's configuration.
        """
        return self._jobs(self.built(params, part), part)

    def _jobs(self, built: Built, part: Part) -> list[Job]:
        return [make_job(*built, folder, seed, tests_groups=part == "test") for seed, folder in self.folders.items()]

    def frozen(self, params: Params, seed: int) -> dict[str, Any]:
        """Return the complete configuration with which ``raysim run`` evaluates a trial on test rows for one seed."""
        config, strategy, _ = self.built(params, "test")
        return idle_keys.without(config, strategy).of_run(seed).frozen_run()

    def rounds(self) -> int:
        """Return the number of rounds of the longest trial."""
        corners = (params for _, params in self.space.corners())
        return max(plugins.rounds(self.config(params, "validation")) for params in corners)

    def trials(self) -> int:
        """Return the number of trials of the sweep."""
        every = self.sweep.trials
        if self.sweep.searcher == "grid":
            combinations = len(self.space.grid())
            return combinations if every is None else min(every, combinations)
        assert every is not None
        return every


def make_plan(tree: Mapping[str, Any]) -> tuple[SweepPlan, Config]:
    """Check a sweep file, build its data, and return the plan and the configuration.

    ``tree`` is the content of the file. The configuration is checked with both ends of every range and with random
    points of the space, so that trials hardly ever fail because of their configuration.
    """
    sweep = read_sweep(tree)
    sweep.check_installed()
    for key in (key for key in ("strategies", "models", "reference") if key in tree):
        raise ConfigError(f"{key}: has no effect in a sweep, which searches one 'strategy'; remove the key")
    base = {key: value for key, value in tree.items() if key != "sweep"}
    config = resolve(base, reads=("data",))
    plugins.check_written_out(config.strategy, "strategy")
    plan = SweepPlan(base, sweep, {seed: Path() for seed in config.seeds or (config.seed,)})
    plan.trials()
    if isinstance(sweep.scheduler, Pbt):
        perturbed(plan.space)
    probes = []
    for where, params in _probes(plan):
        with _naming(where, params):
            probes.append((where, params, plan.built(params, "validation")))
    idle_keys.check(built[:2] for *_, built in probes)
    _check_split(plan, config)
    federations = _federations(plan, config, alone=any(config.hides_rows for *_, (config, *_) in probes))
    task = next(iter(federations.values())).task
    sweep = fitted(sweep, task, _judged(config, federations.values()))
    if config.system is not None:
        timing.check_target(config.system.target, task)
    plan = SweepPlan(base, sweep, {seed: federation.folder for seed, federation in federations.items()})
    _check_parts(federations.values())
    if sweep.judge is not None and config.evaluation.every == 0:
        raise ConfigError("evaluation.every: 0 evaluates no round, but the scheduler compares rounds; set it to 1")
    if sweep.judge is not None and plan.rounds() == 0:
        raise ConfigError(
            "training.rounds: 0 trains in no round, but the scheduler compares rounds; set it to at least 1"
        )
    if "pooled_auroc" in sweep.objectives and len(next(iter(federations.values())).classes) > 2:
        raise ConfigError("sweep.objectives.pooled_auroc: needs a label of two classes; use auroc")
    parameters = 0
    for where, params, built in probes:
        with _naming(where, params):
            for job, federation in zip(plan._jobs(built, "validation"), federations.values(), strict=True):
                check_job(job, federation)
                model = job.work.model.bind(federation, "cpu", job.work.precision)
                parameters = max(parameters, model.layout.size)
    return replace(plan, parameters=parameters), config


def perturbed(space: Space) -> list[Dimension]:
    """Return the searched keys that population-based training may change while a trial runs.

    They are the learning rate and the strategy's continuous settings, without keys that have a condition. Raises
    ``ConfigError`` if the space has no such key.
    """
    trials = [
        dimension
        for dimension in space
        if dimension.continuous
        and not dimension.when
        and (dimension.key.startswith("strategy.") or dimension.key == "training.learning_rate")
    ]
    if not trials:
        raise ConfigError(
            "sweep.space: scheduler pbt changes training.learning_rate and continuous keys of strategy while trials "
            "run, and the space has none of these; add for example training.learning_rate: {loguniform: [0.01, 0.1]}"
        )
    return trials


def _probes(plan: SweepPlan) -> Iterator[tuple[str, Params]]:
    """Yield, for each trial to check, the searched key that it tests (empty if random) and its hyper-parameters."""
    yield from plan.space.corners()
    for number in range(1, TRIED + 1):
        yield "", plan.space.draw(0, number)


@contextlib.contextmanager
def _naming(where: str, params: Params) -> Iterator[None]:
    try:
        yield
    except RaysimError as error:
        text = str(error)
        field, _, fault = text.partition(": ")
        misspelt = field in params and fault.startswith("unknown key") and "strategy.name" not in params
        if where and not misspelt and not text.startswith(("sweep.", "data.", where)):
            # The error names another key, or comes from a plug-in: say which searched key it is about.
            text = f"{where}: {as_yaml(params.get(where))} is refused: {text}"
        raise type(error)(text if text.startswith(("sweep.", "data.")) else f"sweep.space.{text}") from None


def _check_split(plan: SweepPlan, config: Config) -> None:
    split = config.data.split
    if split.column is None and not split.validation:
        raise ConfigError(
            "data.split.validation: is 0, but trials are compared on validation rows; "
            "set for example split: {train: 0.6, validation: 0.2, test: 0.2}"
        )


def _federations(plan: SweepPlan, config: Config, *, alone: bool) -> dict[int, Federation]:
    source = plugins.build_source(config.data)
    if alone:
        # All trials need the same split, so one trial that hides rows decides it for all.
        data = config.data.model_copy(update={"split": config.data.split.by_itself()})
        config = config.replaced(data=data)
    return {seed: plugins.build_federation(config, source, seed) for seed in plan.seeds}


def _check_parts(federations: Iterable[Federation]) -> None:
    for federation in federations:
        for part in ("validation", "test"):
            if not federation.sizes(part).any():
                raise ConfigError(f"data.split: no hospital has {part} rows; a sweep needs validation and test rows")


def _judged(config: Config, federations: Iterable[Federation]) -> int:
    """Return the number of hospitals with defined validation metrics, for the seed with the fewest.

    If hospitals' sizes are hidden, all hospitals are counted.
    """
    fewest = []
    for federation in federations:
        count = len(federation.hospitals)
        if not config.hides_sizes:
            rows = [federation.y[federation.rows(h, "validation")] for h in range(count)]
            count = sum(len(y) > 0 and (not federation.classes or bool((y != y[0]).any())) for y in rows)
        fewest.append(count)
    return min(fewest)


def draw_seed(config: Config) -> int:
    """Return the seed of the search, drawn from ``config.seed`` by a random stream of its own."""
    return int(stream(config.seed, "sweep search").integers(2**31))
