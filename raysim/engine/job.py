"""What a run gets (:class:`Job`), reports while it is played (:class:`Round`), and leaves (:class:`Outcome`)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.adversaries.attack_effect import AttackFigures
from raysim.config.sections.adversary import AdversarySection
from raysim.config.sections.aggregation import AggregationSection
from raysim.config.sections.compression import CompressionSection
from raysim.config.sections.evaluation import EvaluationSection
from raysim.config.sections.privacy import PrivacySection
from raysim.config.sections.secure import SecureSection
from raysim.config.sections.system import SystemSection
from raysim.config.sections.training import StopSection
from raysim.data.federation import Federation
from raysim.engine.measuring.measurement import Gathered, noisy_stays
from raysim.engine.measuring.recalibrating import Recalibrated
from raysim.engine.measuring.stopping import Stopped
from raysim.engine.messages.plan import Work
from raysim.privacy.statement import Statement
from raysim.statistics.convergence import Convergence, convergence
from raysim.strategies.base import Division, Floats, Ids, Mask, Selection, Strategy, Uncertainty
from raysim.strategies.shared.personalization import LastSteps
from raysim.traffic.ledger import UPDATE, Bytes, Ledger
from raysim.training.base import Layout

if TYPE_CHECKING:
    from raysim.engine.attacks.canaries import Canaries
    from raysim.engine.guarantee import Guarantee


@dataclass(frozen=True)
class EarlierPlays:
    """What was played of a run before it was stopped, and is played again with noise that is drawn again."""

    starts: int = 0
    """How often the run was begun or gone on with before."""
    rounds: int = 0
    """How many rounds are played again, at most, all starts together."""

    def stopped(self, since: int, reached: int) -> EarlierPlays:
        """With one start more, which began after round ``since`` and has played no round beyond ``reached``."""
        return EarlierPlays(self.starts + 1, self.rounds + max(0, reached - since))


AHEAD = 2
"""Once a round has been told of, the next one has been played, and the one after it may be before more is told."""


@dataclass(frozen=True)
class Job:
    """One training run: a strategy with a seed."""

    work: Work
    """What all rounds have in common: data, model, optimiser, seed."""
    strategy: Strategy
    """The federated method."""
    selection: Selection
    """Who takes part, where the strategy leaves it to a selection."""
    rounds: int
    """How many rounds are played; fewer where ``stop`` ends the run early."""
    evaluation: EvaluationSection
    """On which rows models are evaluated, and how often."""
    system: SystemSection | None = None
    """How unreliable hospitals are; None: all are reliable, and there is no virtual clock."""
    label: str = ""
    """What errors call the strategy; its class where empty."""
    stop: StopSection | None = None
    """When the run ends before its last round; None: never."""
    adversary: AdversarySection | None = None
    """Who attacks, and how; None: nobody."""
    aggregation: AggregationSection | None = None
    """The robust rule that replaces averages; None: averages."""
    compression: CompressionSection | None = None
    """How updates are compressed; None: not at all."""
    privacy: PrivacySection | None = None
    """What is guaranteed of hospitals' privacy; None: nothing."""
    guarantee: Guarantee | None = None
    """What is guaranteed with the noise that it takes; None: that is not computed yet."""
    secure: SecureSection | None = None
    """How sums are hidden; None: not at all."""
    canaries: Canaries | None = None
    """The canaries of an audit; None: there are none."""
    tests_groups: bool = False
    """Whether gaps between groups of patients are tested; of runs with several seeds those of the first are."""
    last: LastSteps = field(default_factory=LastSteps)
    """What hospitals do after the last round, beside what the strategy lets them."""
    earlier: EarlierPlays = EarlierPlays()
    """What a guarantee charges beside the rounds that count."""

    def guaranteed(self, guarantee: Guarantee | None) -> Job:
        """This job with its ``guarantee``, whose section has epsilon and noise filled in; itself without one."""
        return self if guarantee is None else replace(self, privacy=guarantee.section, guarantee=guarantee)

    @property
    def draws_anew(self) -> bool:
        """Whether a round that is played again has other noise, so that it costs as much as another round."""
        return self.privacy is not None and self.privacy.noise == "system"

    @property
    def name(self) -> str:
        """What errors call the strategy."""
        return self.label or type(self.strategy).__name__


@dataclass(eq=False)
class Round:
    """A row of ``rounds.csv``.

    A run without rounds has one row, round 0, with what its set-up took and sent: :attr:`Outcome.setup`.
    """

    round: int
    """Its number: 1, 2, ..."""
    seconds: float
    """How long it took, in seconds of real time."""
    cohort_size: int
    """How many hospitals' updates went into it."""
    bytes_down: int
    """Bytes that hospitals received in it."""
    bytes_up: int
    """Bytes that hospitals sent in it."""
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    """Federation-level metrics by model served, where it was evaluated."""
    virtual_seconds: float | None = None
    """Virtual time from the run's beginning until the server had this round's models; NaN where no federation could
    have them (pooled rows), None without a virtual clock."""
    asked: int = 0
    """How many hospitals were called, on a virtual clock."""
    staleness: float = 0.0
    """The mean staleness of the cohort's updates, in versions of the global model."""
    training_loss: float | None = None
    """Mean loss over the training rows of all hospitals, where it was taken; see :class:`TrainingLosses`."""
    validation_loss: float | None = None
    """Mean loss over the validation rows of all hospitals, where the run may stop early; see :class:`Stopping`."""

    def exchange(self, further: Bytes) -> None:
        """Count ``further`` bytes, which were exchanged after its updates."""
        self.bytes_down += further.down
        self.bytes_up += further.up


@dataclass(eq=False, kw_only=True)
class Outcome(Gathered):
    """What a finished run leaves."""

    rounds: list[Round]
    """All of them, in order."""
    figures: dict[str, Floats]
    """Per model served, the figures of each hospital, ``[N, len(task.figures)]``."""
    metrics: dict[str, dict[str, float]]
    """Per model served, the metrics of the federation."""
    serve: dict[str, Ids]
    """Per model served, the model row of each hospital ``[N]``, or of each group of its rows ``[N, G]``, or ``OWN``."""
    models: Floats
    """The server's models, ``[M, P]``; row 0 is the global one."""
    cluster: Ids | None
    """The model row of each hospital's cluster model, ``[N]``, or None."""
    kept: dict[int, NDArray[Any]]
    """The hospitals' own models ``[P]`` by id; only their ``private`` parameters are used where there are such."""
    layout: Layout
    """Where each tensor lies in a model's parameters."""
    ledger: Ledger
    """Everything that ever left a hospital."""
    seconds: float
    """How long the run took in all, set-up and last evaluation included."""
    setup: Bytes = field(default_factory=Bytes)
    """What was exchanged before the first round."""
    private: Mask | None = None
    """The parameters that never left a hospital, ``[P]``, or None."""
    mixture: Floats | None = None
    """The weights of model rows that make a hospital's model until it has its own, ``[N, M]``, or None."""
    division: Division | None = None
    """How rows are cut into the groups that models belong to, or None."""
    predictions: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Per model served, its outputs for all rows ``[n]`` or ``[n, C]``, where these were asked for."""
    stopped: Stopped | None = None
    """How the run ended where it may stop early; None where it may not."""
    facts: dict[str, float] = field(default_factory=dict)
    """Figures that the strategy reports beside its models."""
    clusters_of_patients: Ids | None = None
    """The training rows of each hospital in each group of its division, ``[N, G]``; None without one."""
    bad: Ids = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """The ids of the hospitals that attacked."""
    attack: AttackFigures | None = None
    """What the attack changed; None without one."""
    privacy: Statement | None = None
    """The guarantee of privacy, with the epsilon that was spent; None where nothing was guaranteed."""

    one_class: dict[str, Mask] = field(default_factory=dict)
    """Per model served, the hospitals ``[N]`` that trained it themselves, in whole or the part that they keep, on rows
    of one class; empty under a guarantee of privacy, where nobody knows."""
    noisy_sizes: Ids | None = None
    """How many units each hospital trains on, as it has released with noise, ``[N]``; None where that is public."""
    seen: Floats | None = None
    """The component of each round's update along each canary, ``[rounds, M]``; None without canaries."""
    recalibrated: Recalibrated | None = None
    """The recalibration of the model that is called ``recalibrated``; None without one."""
    uncertainty: Uncertainty | None = None
    """How sure the global model's parameters are; None where nothing estimates that."""
    ended: bool = False
    """Whether the strategy has finished by itself, such as an exact fit: no round could change its models."""
    called: Ids | None = None
    """In how many rounds client programs were run at each hospital, ``[N]``; None for strategies without."""

    @property
    def convergence(self) -> Convergence | None:
        """Whether the training loss has converged; None where none was measured, or where no round is left to be
        played.

        A fit that says that it has not converged yet has not diverged, whatever its loss: it may have begun again.
        """
        losses = list(self.loss_curve.values())
        if not losses or self.ended:
            return None
        found = convergence(losses, self.losses.constant)
        if found.verdict == "diverged" and self.facts.get("converged") == 0:
            return Convergence("falling", ("few_points",), found.before, found.last, math.nan)
        return found

    @property
    def loss_curve(self) -> dict[int, float]:
        """The training losses by round, 0 before training; empty where none were taken."""
        return self.losses.curve({row.round: row.training_loss for row in self.rounds})

    def stays(self, federation: Federation, model: str) -> Ids:
        """How many rows each hospital has, ``[N]``, as far as that is public; see :func:`noisy_stays`."""
        return noisy_stays(federation, self.noisy_sizes, self.figures[model])

    @property
    def played(self) -> int:
        """How many rounds were played; 0 where the strategy has none."""
        return max((row.round for row in self.rounds), default=0)

    def participated(self, hospitals: int) -> Ids | None:
        """In how many of the rounds each of so many hospitals has sent an update, ``[hospitals]``.

        None under a privacy guarantee, which assumes that nobody knows who was sampled. Training alone and training on
        pooled rows send none. An update that came too late to be used was sent all the same.
        """
        if self.privacy is not None:
            return None
        if self.called is not None:
            return self.called
        return self.ledger.rounds_with((UPDATE,), hospitals, range(1, self.played + 1))

    @property
    def traffic(self) -> Bytes:
        """What was exchanged in all rounds together, without the set-up."""
        rounds = [row for row in self.rounds if row.round > 0]
        return Bytes(sum(row.bytes_down for row in rounds), sum(row.bytes_up for row in rounds))


@dataclass(frozen=True, eq=False)
class Result:
    """A finished run of an experiment and the folder with its files."""

    label: str
    """What tables call the strategy."""
    is_reference: bool
    """Whether its strategy is a reference, such as training on pooled rows, and not a federated method."""
    seed: int
    """The seed of the run."""
    federation: Federation
    """The federation that it ran on."""
    outcome: Outcome
    """Its models and figures."""
    folder: Path
    """The folder with its files."""
    title: str = ""
    """What people call the strategy; empty: its label."""
    alone: bool = False
    """Whether its hospitals train by themselves."""
    learner: str = ""
    """What tables call the model; empty where that is not known."""
    by_steps: bool = True
    """Whether its strategy trains by the configured learning rate."""
