"""The input of a run (:class:`Job`), its progress reports (:class:`Round`), and its result (:class:`Outcome`)."""

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
from raysim.strategies.base import Division, Floats, Ids, Mask, Newcomers, Selection, Strategy, Uncertainty
from raysim.strategies.shared.personalization import LastSteps
from raysim.traffic.ledger import UPDATE, Bytes, Ledger
from raysim.training.base import Layout

if TYPE_CHECKING:
    from raysim.engine.attacks.canaries import Canaries
    from raysim.engine.guarantee import Guarantee


@dataclass(frozen=True)
class EarlierStarts:
    """The record of earlier starts of a run that was stopped and resumed.

    If a round that is run again after a stop draws fresh noise, the repetition costs privacy.
    """

    starts: int = 0
    """How often the run was started or resumed before."""
    rounds: int = 0
    """An upper bound on the number of rounds that were run again in all earlier starts."""

    def stopped(self, since: int, reached: int) -> EarlierStarts:
        """Return this record with one more start, which continued after round ``since`` and ran no round beyond
        ``reached``.
        """
        return EarlierStarts(self.starts + 1, self.rounds + max(0, reached - since))


AHEAD = 2
"""The largest number of rounds that a stopped run may have run beyond the last round that it reported. A round is
reported only after the next one has run, and one more may have begun."""


@dataclass(frozen=True)
class Job:
    """One training run: a strategy with a seed, and all other settings of the run."""

    work: Work
    """The settings shared by all rounds: data, model, optimiser, seed."""
    strategy: Strategy
    selection: Selection
    """How hospitals are sampled for each round, if the strategy uses the configured selection."""
    rounds: int
    """The largest number of rounds; the run may end before."""
    evaluation: EvaluationSection
    system: SystemSection | None = None
    """How unreliable hospitals are; None means that all are reliable, and that there is no virtual clock."""
    label: str = ""
    """The strategy's name in errors; if empty, the name of its class."""
    stop: StopSection | None = None
    adversary: AdversarySection | None = None
    aggregation: AggregationSection | None = None
    """The robust rule that replaces averages; None means plain averages."""
    compression: CompressionSection | None = None
    privacy: PrivacySection | None = None
    """The configured privacy guarantee; None means no guarantee."""
    guarantee: Guarantee | None = None
    """The privacy guarantee with its calibrated noise; None without a guarantee, or if it has not been computed yet."""
    secure: SecureSection | None = None
    canaries: Canaries | None = None
    tests_groups: bool = False
    """Whether differences in metrics between groups of patients are tested."""
    last: LastSteps = field(default_factory=LastSteps)
    earlier: EarlierStarts = EarlierStarts()

    def guaranteed(self, guarantee: Guarantee | None) -> Job:
        """Return this job with the computed privacy ``guarantee``; unchanged if ``guarantee`` is None."""
        return self if guarantee is None else replace(self, privacy=guarantee.section, guarantee=guarantee)

    @property
    def redraws_noise(self) -> bool:
        """Whether a round that is run again after a stop draws fresh noise, and therefore costs as much privacy as one
        more round.
        """
        return self.privacy is not None and self.privacy.noise == "system"

    @property
    def name(self) -> str:
        """The strategy's name in errors."""
        return self.label or type(self.strategy).__name__


@dataclass(eq=False)
class Round:
    """A row of ``rounds.csv``: the time, bytes and metrics of one round.

    A run without rounds has one row, round 0, with the time and bytes before any round (:attr:`Outcome.setup`).
    """

    round: int
    """The number of the round: 1, 2, ...; 0 in a run without rounds."""
    seconds: float
    """The duration of the round in seconds of real time."""
    cohort_size: int
    """The number of hospitals whose updates were used."""
    bytes_down: int
    """The bytes that hospitals received in the round."""
    bytes_up: int
    """The bytes that hospitals sent in the round."""
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    """The federation's metrics, by evaluated model and by name of the metric; empty if the round was not evaluated."""
    virtual_seconds: float | None = None
    """Virtual seconds from the run's start until the server had this round's models. NaN for training on pooled rows,
    which is not simulated; None without a virtual clock."""
    asked: int = 0
    """The number of hospitals called in the round, counted again at every attempt; 0 without a virtual clock, and
    for pooled rows."""
    staleness: float = 0.0
    """The mean staleness of the updates: how many newer versions of the global model existed when an update was used.
    It is 0 without a virtual clock."""
    training_loss: float | None = None
    """The mean loss over the training rows of all hospitals; None if it was not measured."""
    validation_loss: float | None = None
    """The mean loss over the validation rows of all hospitals; None without early stopping."""

    def exchange(self, further: Bytes) -> None:
        """Add ``further`` bytes, exchanged after the round's updates, to the round's traffic."""
        self.bytes_down += further.down
        self.bytes_up += further.up


@dataclass(eq=False, kw_only=True)
class Outcome(Gathered):
    """The result of a finished run."""

    rounds: list[Round]
    """All rounds, in order."""
    figures: dict[str, Floats]
    """For each evaluated model, by name, the metrics of each hospital, ``[N, len(task.figures)]``."""
    metrics: dict[str, dict[str, float]]
    """For each evaluated model, by name, the metrics of the federation, by name."""
    serve: dict[str, Ids]
    """For each evaluated model, by name, the index in ``models`` of the model that each hospital uses, ``[N]``, or that
    it uses for each group of its rows, ``[N, G]``. ``OWN`` means the model that the hospital stores.
    """
    models: Floats
    """The server's models, ``[M, P]``; row 0 is the global model."""
    cluster: Ids | None
    """The row of ``models`` with the model of each hospital's cluster, ``[N]``; None without clusters."""
    newcomers: Newcomers | None = None
    """The rule that assigns hospitals without training rows to clusters; None without a rule, or if there are no such
    hospitals."""
    own_models: dict[int, NDArray[Any]]
    """The models ``[P]`` that hospitals store, by hospital id. If the run has ``private`` parameters, only the private
    parameters of these models are used."""
    layout: Layout
    """The position of each tensor in a model's parameters."""
    ledger: Ledger
    """The traffic ledger: a record of everything that left a hospital."""
    seconds: float
    """The duration of the whole run in seconds, including the set-up and the last evaluation."""
    setup: Bytes = field(default_factory=Bytes)
    """The bytes that were exchanged before the first round."""
    private: Mask | None = None
    """A mask of the parameters that never left a hospital, ``[P]``; None without such parameters."""
    mixture: Floats | None = None
    """The weights ``[N, M]`` of the ``M`` server models in each hospital's model; None without a mixture. A hospital
    uses the mixture until it has its own model."""
    division: Division | None = None
    """The rule that divides rows into groups with models of their own; None if rows are not divided."""
    predictions: dict[str, NDArray[Any]] = field(default_factory=dict)
    """For each evaluated model, by name, its outputs for all ``n`` rows, ``[n]`` or ``[n, C]`` for ``C`` classes; empty
    if not requested."""
    stopped: Stopped | None = None
    """How early stopping ended the run; None without early stopping."""
    facts: dict[str, float] = field(default_factory=dict)
    """Further numbers about the run, by name, for instance from the strategy or from recalibration."""
    clusters_of_patients: Ids | None = None
    """The number of each hospital's training rows in each of the ``G`` groups of ``division``, ``[N, G]``, noisy if
    statistics have privacy noise; None without a division."""
    bad: Ids = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """The ids of the Byzantine hospitals; empty without an attack."""
    attack: AttackFigures | None = None
    """How the attack changed the results of the run; None without an attack."""
    privacy: Statement | None = None
    """The privacy guarantee with the epsilon that the run has reached; None without a guarantee."""

    all_rows: Ids | None = None
    """The number of rows of each hospital in the full data, ``[N]``, if the federation has only some of these rows;
    None if the federation has all rows."""
    one_class: dict[str, Mask] = field(default_factory=dict)
    """For each evaluated model, by name, a mask ``[N]`` of the hospitals that trained their own model, or their private
    parameters, on rows of one class only. It is empty under a privacy guarantee, which hides these hospitals."""
    noisy_sizes: Ids | None = None
    """The number of patients or rows on which each hospital trains, with noise, ``[N]``; None if exact numbers are
    public."""
    canary_components: Floats | None = None
    """The component of each round's update along each of the ``M`` canaries of a privacy audit, ``[rounds, M]``; None
    without canaries."""
    recalibrated: Recalibrated | None = None
    """The recalibrated main model, which tables call ``recalibrated``; None without recalibration."""
    uncertainty: Uncertainty | None = None
    """The uncertainty of the global model's parameters; None if the strategy does not estimate it."""
    ended: bool = False
    """Whether the strategy has finished by itself, for instance after an exact fit."""
    called: Ids | None = None
    """The number of rounds in which each hospital ran client programs, ``[N]``; None without client programs."""

    @property
    def convergence(self) -> Convergence | None:
        """Return whether the training loss has converged or diverged. None if no loss was measured, or if the strategy
        ended the run itself.

        A fit that reports non-convergence never counts as diverged, because it may have restarted.
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
        """Return the training loss by round; round 0 is before training. Empty if no loss was measured."""
        return self.losses.curve({row.round: row.training_loss for row in self.rounds})

    def stays(self, federation: Federation, model: str) -> Ids:
        """Return the number of rows of each hospital in the full data or, if it is secret, a public size; see
        :func:`noisy_stays`.
        """
        if self.all_rows is not None:
            return self.all_rows
        return noisy_stays(federation, self.noisy_sizes, self.figures[model])

    @property
    def rounds_run(self) -> int:
        """Return how many rounds were run; 0 if the strategy has no rounds."""
        return max((row.round for row in self.rounds), default=0)

    def participated(self, hospitals: int) -> Ids | None:
        """Return, for each hospital, the number of rounds in which it has sent an update or run a client program.

        ``hospitals`` is the number of all hospitals. The result is None under a privacy guarantee, which assumes that
        client sampling is secret. An update that arrived too late to be used counts as sent.
        """
        if self.privacy is not None:
            return None
        if self.called is not None:
            return self.called
        rounds = range(1, self.rounds_run + 1)
        trained = self.ledger.rounds_with((UPDATE,), hospitals, rounds)
        answers = {entry.kind for entry in self.ledger.entries if entry.program}
        return trained if trained.any() else self.ledger.rounds_with(answers, hospitals, rounds)

    @property
    def traffic(self) -> Bytes:
        """Return the bytes exchanged in all rounds together, without those before the first round."""
        rounds = [row for row in self.rounds if row.round > 0]
        return Bytes(sum(row.bytes_down for row in rounds), sum(row.bytes_up for row in rounds))


@dataclass(frozen=True, eq=False)
class Result:
    """A finished run of an experiment and the folder with its files."""

    label: str
    """The strategy's name in tables."""
    is_reference: bool
    """Whether the strategy is a reference, such as training on pooled rows, and not a federated method."""
    seed: int
    federation: Federation
    """The federation of the run."""
    outcome: Outcome
    """The models and metrics of the run."""
    folder: Path
    """The folder with the run's files."""
    title: str = ""
    """The strategy's full name; if empty, the label is used."""
    alone: bool = False
    """Whether hospitals train alone, without a federation."""
    learner: str = ""
    """The model's name in tables; empty if unknown."""
    by_steps: bool = True
    """Whether the strategy trains by gradient steps with the configured learning rate."""
