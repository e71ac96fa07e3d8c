"""What a run is given, what it tells while it is played, and what it leaves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.config.schema import EvaluationSection
from raysim.config.system import SystemSection
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.messages import HospitalStates, Work
from raysim.engine.subgroups import Grouping, grouping
from raysim.strategies.base import Floats, Ids, Selection, State, Strategy, Training
from raysim.traffic.ledger import Bytes, Ledger
from raysim.training.base import Layout
from raysim.virtual_time.clock import Clock
from raysim.virtual_time.unreliable import check_system


@dataclass(frozen=True)
class Job:
    """One training run: a strategy with a seed."""

    work: Work
    strategy: Strategy
    selection: Selection
    rounds: int
    evaluation: EvaluationSection
    system: SystemSection | None = None


@dataclass(eq=False)
class Round:
    """A row of ``rounds.csv``. ``metrics`` maps each evaluated model served to its federation-level metrics.

    A run without rounds has one row, round 0, with what its set-up took and sent: :attr:`Outcome.setup`.

    Of unreliable hospitals: ``virtual_seconds`` from the run's beginning until the server had this round's models (NaN
    where no federation could have them, None where no time passes), the ``asked`` hospitals, and the cohort's mean
    ``staleness``.
    """

    round: int
    seconds: float
    cohort_size: int
    bytes_down: int
    bytes_up: int
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    virtual_seconds: float | None = None
    asked: int = 0
    staleness: float = 0.0


@dataclass(eq=False)
class Outcome:
    """What a finished run leaves.

    ``figures`` per model served ``[N, len(task.figures)]``; ``metrics`` per model served, federation-level;
    ``serve`` per model served, ``[N]`` or ``[N, G]`` bank rows or OWN; ``bank [M, P]`` with row 0 the global model;
    ``cluster [N]`` bank rows or None; ``kept`` the hospitals' own models, of which only ``private [P]`` is used where
    that is not None; ``setup`` what was exchanged before the first round; ``facts`` what the strategy has to tell;
    ``clusters_of_patients [N, G]`` the training rows of each hospital in each group of its division, None without one;
    ``groups`` figures by patient group (``grouping``), as :func:`subgroups.merged` gives them per model served and
    attribute; ``seconds`` of all, set-up and last evaluation
    included.
    """

    rounds: list[Round]
    figures: dict[str, Floats]
    metrics: dict[str, dict[str, float]]
    serve: dict[str, Ids]
    bank: Floats
    cluster: Ids | None
    kept: dict[int, NDArray[Any]]
    layout: Layout
    ledger: Ledger
    seconds: float
    setup: Bytes = field(default_factory=Bytes)
    private: NDArray[np.bool_] | None = None
    facts: dict[str, float] = field(default_factory=dict)
    clusters_of_patients: Ids | None = None
    grouping: Grouping | None = None
    groups: dict[str, dict[str, tuple[Floats, Floats]]] = field(default_factory=dict)

    @property
    def traffic(self) -> Bytes:
        """What was exchanged in all rounds together, without the set-up."""
        rounds = [row for row in self.rounds if row.round > 0]
        return Bytes(sum(row.bytes_down for row in rounds), sum(row.bytes_up for row in rounds))


@dataclass(frozen=True, eq=False)
class Result:
    """A finished run of an experiment and the folder with its files."""

    label: str
    yardstick: bool
    seed: int
    federation: Federation
    outcome: Outcome
    folder: Path


@dataclass(eq=False)
class History:
    """What a job has to show so far: its rounds (the last one not evaluated yet), what left hospitals, and seconds.

    ``setup_down`` are the bytes that hospitals received before the first round, ``models_held [N]`` is that of
    :class:`raysim.traffic.exchange.Traffic`.
    """

    rounds: list[Round]
    ledger: Ledger
    seconds: float
    setup_down: int
    models_held: Ids

    def copy(self) -> History:
        """One that a run may write on."""
        return replace(
            self,
            rounds=[replace(row) for row in self.rounds],
            ledger=Ledger(list(self.ledger.entries)),
            models_held=self.models_held.copy(),
        )


@dataclass(eq=False)
class RunState:
    """Where a job stands after ``round``: what it can go on from, with the same hyper-parameters or others.

    ``memory`` is the selection's, ``clock`` what is under way between hospitals and server. With a ``history`` it is a
    checkpoint: the job goes on as if it had never stopped.
    """

    round: int
    state: State
    kept: HospitalStates | None
    memory: Any = None
    history: History | None = None
    clock: Clock | None = None


Event = Round | Outcome | RunState
"""What a run tells while it is played."""


def check_job(job: Job, federation: Federation) -> None:
    """Raise ``ConfigError`` for a job that this federation cannot serve, before anything starts."""
    try:
        job.strategy.check(federation.hospitals, federation.sizes("train"))
    except ValueError as error:
        raise ConfigError(f"strategy.{error}") from None
    layout = job.work.model.bind(federation, "cpu", job.work.precision).layout
    classes = len(federation.classes)
    training = Training(layout.slices, job.work.optimizer.name, classes, lambda: federation.patients)
    try:
        job.strategy.check_training(training)
        job.selection.check_training(training)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    grouping(federation, job.evaluation.groups, job.evaluation.age_bands)
    if job.system is not None:
        check_system(job.system, job.selection, federation.hospitals, federation.sizes("train"), job.work.seed)
    if not federation.sizes(job.evaluation.part).any():
        raise ConfigError(
            f"evaluation.part: no hospital has {job.evaluation.part} rows; "
            f"give data.split.{job.evaluation.part} a share"
        )
