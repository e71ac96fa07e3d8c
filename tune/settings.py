"""The ``sweep`` section of a sweep file: the search space, the searcher, the objectives, and the number of trials.

A sweep file is a configuration for ``raysim run`` with this additional section.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, FiniteFloat, field_validator, model_validator

from raysim.config.checking import validated
from raysim.core.defaults import default
from raysim.core.errors import ConfigError, nearest
from raysim.core.installed import need
from raysim.core.section import Section
from raysim.engine import timing
from raysim.metrics.labels import CLASSIFICATION, KINDS, TaskKind
from raysim.statistics.differences.paired import FEW_HOSPITALS

SEARCHERS = ("random", "grid", "optuna")

Direction = Literal["max", "min"]

OBJECTIVES: dict[str, Direction] = CLASSIFICATION.objectives
"""The default objectives for labels with classes; for a numeric label, the defaults are those of regression."""

TRAFFIC = ("bytes_down", "bytes_up")
"""The objectives that measure the bytes sent to and by hospitals in a run."""


class Fifo(Section):
    """The scheduler that runs every trial to its end."""

    name: Literal["fifo"] = "fifo"


class Judging(Section):
    """A scheduler that compares trials by ``objective``, which it receives after every evaluated round."""

    objective: str | None = default("sweep.scheduler.objective")


class Asha(Judging):
    """The scheduler that stops all but the best ``1 / reduction`` of trials at certain rounds (Li et al., 2020,
    arXiv:1810.05934).

    These rounds are ``grace``, ``grace * reduction``, ``grace * reduction ** 2`` and so on.
    """

    name: Literal["asha"] = "asha"
    grace: int = default("sweep.scheduler.grace", ge=1)
    reduction: float = default("sweep.scheduler.reduction", gt=1)


class Median(Judging):
    """The scheduler that compares a trial's best value so far with other trials' mean values so far (Golovin, 2017, the
    paper on Vizier).

    From round ``grace`` on, it stops a trial if the best value is worse than the median of these means.
    """

    name: Literal["median"] = "median"
    grace: int = default("sweep.scheduler.grace", ge=1)
    minimum: int = default("sweep.scheduler.minimum", ge=1)


class Pbt(Judging):
    """Population-based training: every ``every`` rounds, each trial in the worst quarter continues from a trial in the
    best quarter.

    In trials of the worst quarter, the learning rate and continuous settings of the strategy, if searched, are
    perturbed. Jaderberg et al., *Population based training of neural networks*, 2017.
    """

    name: Literal["pbt"] = "pbt"
    every: int = default("sweep.scheduler.every", ge=1)


Scheduler = Fifo | Asha | Median | Pbt

SCHEDULERS: dict[str, type[Scheduler]] = {"fifo": Fifo, "asha": Asha, "median": Median, "pbt": Pbt}


class Sweep(Section):
    """The section ``sweep``; ``space`` is described in :mod:`raysim.tune.spaces`.

    - ``trials``: the number of trials; None means all combinations of searcher ``grid``.
    - ``concurrent``: the largest number of concurrent trials; None means that
      :func:`raysim.tune.running.places.open_places` chooses it.
    - ``objectives``: metrics of the headline model on validation rows, with their directions.
    - ``reference``: the reference point of the hypervolume, by objective.
    - ``retries``: how often a failed trial is tried again.
    """

    space: dict[str, Any]
    trials: int | None = default("sweep.trials", ge=1, le=1_000_000)
    concurrent: int | None = default("sweep.concurrent", ge=1)
    searcher: str = default("sweep.searcher")
    scheduler: Scheduler = Field(default_factory=Fifo)
    objectives: dict[str, Direction] = Field(default_factory=lambda: dict(OBJECTIVES))
    reference: dict[str, FiniteFloat] = default("sweep.reference")
    retries: int = default("sweep.retries", ge=0)

    @field_validator("searcher")
    @classmethod
    def _known_searcher(cls, value: str) -> str:
        if value not in SEARCHERS:
            raise ValueError(f"'{value}' is not a searcher; {nearest(value, SEARCHERS)}")
        return value

    @field_validator("scheduler", mode="before")
    @classmethod
    def _known_scheduler(cls, value: Any) -> Any:
        tree = {"name": value} if isinstance(value, str) else value
        if isinstance(tree, Section):
            return tree
        if not isinstance(tree, Mapping) or tree.get("name") not in SCHEDULERS:
            name = tree.get("name") if isinstance(tree, Mapping) else tree
            raise ValueError(f"'{name}' is not a scheduler; {nearest(str(name), SCHEDULERS)}")
        return validated(SCHEDULERS[tree["name"]], dict(tree), "sweep.scheduler")

    @model_validator(mode="after")
    def _consistent(self) -> Sweep:
        if self.searcher != "grid" and self.trials is None:
            raise ConfigError(f"sweep.trials: searcher {self.searcher} has no end; give the number of trials")
        metrics = metric_names()
        if not self.objectives:
            raise ConfigError("sweep.objectives: is empty; write for example auroc: max")
        for name in self.objectives:
            if name not in metrics:
                raise ConfigError(f"sweep.objectives.{name}: no run reports this metric; {nearest(name, metrics)}")
        for name in self.reference:
            if name not in self.objectives:
                raise ConfigError(
                    f"sweep.reference.{name}: is not an objective of the sweep; {nearest(name, self.objectives)}"
                )
        if isinstance(self.scheduler, Judging):
            self._check_judge(self.scheduler)
        return self

    def _check_judge(self, scheduler: Judging) -> None:
        name = type(scheduler).__name__.lower()
        if scheduler.objective is None and len(self.objectives) > 1:
            several = ", ".join(self.objectives)
            raise ConfigError(f"sweep.scheduler.objective: {name} cannot use several objectives ({several}); name one")
        if scheduler.objective is not None and scheduler.objective not in self.objectives:
            raise ConfigError(
                f"sweep.scheduler.objective: '{scheduler.objective}' is not among the sweep's objectives; "
                f"{nearest(scheduler.objective, self.objectives)}"
            )
        if self.judge in TRAFFIC:
            raise ConfigError(
                f"sweep.scheduler.objective: {self.judge} is computed only at the end of a run; name a metric that is "
                "computed in every round"
            )
        if isinstance(scheduler, Pbt) and self.searcher != "random":
            raise ConfigError(
                f"sweep.searcher: {self.searcher} cannot be combined with scheduler pbt, which chooses new values "
                "itself; use random"
            )

    def check_installed(self) -> None:
        """Raise ``ConfigError`` if the searcher needs a package that is not installed."""
        if self.searcher == "optuna":
            need("optuna", "sweep", "sweep.searcher", "set it to random or grid")

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the objectives, in order."""
        return tuple(self.objectives)

    @property
    def larger(self) -> tuple[bool, ...]:
        """Return, for each objective, whether it is maximised."""
        return tuple(direction == "max" for direction in self.objectives.values())

    @property
    def judge(self) -> str | None:
        """Return the objective by which the scheduler compares trials; None if it compares none."""
        if isinstance(self.scheduler, Judging):
            return self.scheduler.objective or self.names[0]
        return None

    def frozen(self) -> dict[str, Any]:
        """Return the section ``sweep`` with all defaults, as plain YAML types."""
        return self.model_dump(mode="json", exclude_none=True)


def read_sweep(tree: Mapping[str, Any]) -> Sweep:
    """Read and check the section ``sweep`` of a sweep file with the content ``tree``."""
    if "sweep" not in tree:
        raise ConfigError("sweep: missing; add this section, which defines the search (docs/sweeps.md)")
    return validated(Sweep, tree["sweep"], "sweep")


def metric_names() -> Sequence[str]:
    """Return the metrics that can be objectives of a sweep."""
    return [*dict.fromkeys(name for kind in KINDS.values() for name in kind.reported()), *TRAFFIC]


MANY = ("worst_decile", "p10", "p90", "size_bias", "size_bias_abs")
"""The objectives that need at least ten hospitals: deciles over hospitals, and slopes on hospitals' sizes."""


def fitted(sweep: Sweep, kind: TaskKind, judged: int) -> Sweep:
    """Return the sweep, with the default objectives for labels of this ``kind`` if the sweep names none.

    ``judged`` is the number of hospitals with enough validation rows for metrics. With fewer than ten such hospitals,
    the defaults exclude the objectives in :data:`MANY`. Raises ``ConfigError`` for an objective that does not exist for
    this label, has the wrong direction, or needs more hospitals.
    """
    if "objectives" not in sweep.model_fields_set:
        objectives = {k: v for k, v in kind.objectives.items() if judged >= FEW_HOSPITALS or k not in MANY}
        if sweep.judge in MANY and judged < FEW_HOSPITALS:
            raise ConfigError(f"sweep.scheduler.objective: {sweep.judge} {_takes_many(judged, kind)}")
        return sweep.model_copy(update={"objectives": objectives})
    reported = [*kind.reported(), *TRAFFIC]
    for name, direction in sweep.objectives.items():
        if name not in reported:
            hint = nearest(name, reported)
            raise ConfigError(f"sweep.objectives.{name}: no run of a {kind.name} task reports this metric; {hint}")
        if name in MANY and judged < FEW_HOSPITALS:
            raise ConfigError(f"sweep.objectives.{name}: it {_takes_many(judged, kind)}")
        wanted = better(name, kind)
        if wanted is not None and direction != wanted:
            raise ConfigError(
                f"sweep.objectives.{name}: {direction} searches for the worst value in a {kind.name} task; "
                f"write {wanted}"
            )
    return sweep


def _takes_many(judged: int, kind: TaskKind) -> str:
    can = f"only {judged} can be judged on validation rows"
    return f"needs {FEW_HOSPITALS} hospitals, and {can}; use {kind.headline} or gini"


def better(name: str, kind: TaskKind) -> Direction | None:
    """Return whether objective ``name`` should be maximised or minimised; None for neither, as for a signed bias."""
    if name in (*timing.LARGER, *kind.pooled) or (name in timing.AS_HEADLINE and kind.larger):
        return "max"
    return "min" if name in (*timing.SMALLER, *timing.AS_HEADLINE, *TRAFFIC) else None
