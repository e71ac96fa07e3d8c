"""What travels between the coordinator and hospital actors: one plan down, one partial result up."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.data.federation import Federation
from raysim.engine.measuring.group_gaps import Rearranging
from raysim.engine.measuring.subgroups import GroupFigures, Grouping
from raysim.metrics.error_counts import ErrorCounts
from raysim.metrics.score_counts import ScoreCounts
from raysim.metrics.summed import SummedFigures
from raysim.privacy.noisy_sums import Mechanism
from raysim.statistics.discrimination.auroc import PairSums
from raysim.statistics.patient_groups.within import AttributeSums
from raysim.strategies.base import Division, Floats, Ids, LocalProblem, Mask, Program, Question
from raysim.training.base import Model, Optimizer
from raysim.training.class_weights import ClassWeights
from raysim.training.models import build_model

if TYPE_CHECKING:
    from raysim.config.sections.plugin_sections import ModelSection
    from raysim.config.sections.privacy import RowUnit
    from raysim.engine.measuring.recalibrating import OwnShifts, Recalibrating
    from raysim.engine.messages.steps import HospitalStep
    from raysim.engine.privacy.program_release import ProgramRelease
    from raysim.secure.protocol import SecureSum


@dataclass(frozen=True)
class ModelSpec:
    """Which model, by registered name or import path, with its options."""

    name: str | None
    class_path: str | None
    options: dict[str, Any]
    init: str

    @staticmethod
    def of(section: ModelSection) -> ModelSpec:
        """The model that a configuration names."""
        return ModelSpec(section.name, section.class_path, section.options(), section.init)

    def bind(self, federation: Federation, device: str, precision: str) -> Model:
        """The model for this federation's features and classes. Raises ``ConfigError`` for options that it refuses."""
        return build_model(
            self.class_path or self.name or "",
            federation.X.shape[1],
            len(federation.classes),
            levels=lambda: federation.levels,
            options=self.options,
            init=self.init,
            device=device,
            precision=precision,
        )


@dataclass(frozen=True)
class Work:
    """What all rounds of a run have in common. Small: it travels with every plan, so that actors stay pure."""

    federation: str
    """Folder of the federation, mapped by each actor."""
    model: ModelSpec
    """The model that is trained."""
    optimizer: Optimizer
    """The optimiser, unless a problem names another."""
    epochs: int
    """Epochs of a hospital's local update, unless a problem says otherwise."""
    seed: int
    """The seed of all random streams of the run."""
    precision: str
    """The type of hospitals' parameters: ``float32`` or ``float64``."""
    class_weights: ClassWeights = "none"
    """The weight of the loss by class; the server replaces ``balanced`` by numbers before it sends any work."""


@dataclass(frozen=True)
class StatisticNoise:
    """How hospitals hide a unit (a row or a patient) in answers about their rows."""

    unit: RowUnit
    """Who is hidden."""
    rows: int
    """The most rows of a unit that are used."""
    mechanism: Mechanism
    """Which noise the sums over units get."""
    turn: int = 0
    """How often the same kind was sent before in this round: each time has noise of its own."""


@dataclass(frozen=True)
class FigureNoise:
    """How hospitals hide a unit in their figures."""

    noise: StatisticNoise
    """The noise on the sums."""
    sums: SummedFigures
    """Which sums, and the figures that follow from them."""


@dataclass(frozen=True, eq=False)
class ProgramCall:
    """A client program that hospitals run."""

    program: Program
    """What they compute."""
    name: str
    """What errors call it."""
    turn: int
    """How many calls of a program of this name came before in the round."""
    received: dict[str, NDArray[Any]]
    """What each hospital receives."""
    each_of: dict[str, NDArray[Any]]
    """Arrays ``[H, ...]`` of which each hospital receives its own row."""
    terms: dict[str, int]
    """By name, how many terms the sum over all hospitals has."""
    secure: SecureSum | None = None
    """The secure sum that all of its sums travel in, one behind the other; None: they are not hidden."""
    masked: bool = False
    """Whether masks are really made, and not only counted."""
    release: ProgramRelease | None = None
    """What a guarantee of privacy does to what leaves; None: nothing."""

    @property
    def remembers(self) -> bool:
        """Whether hospitals remember anything of it."""
        return bool(self.program.keeps)


@dataclass(frozen=True, eq=False)
class RoundPlan:
    """One round for all hospitals: every actor takes from it what concerns the hospitals that it serves."""

    work: Work
    """What all rounds have in common."""
    round: int
    """Its number, which keys the streams of batches."""
    models: NDArray[Any]
    """The server's models ``[M, P]``, in the run's precision."""
    ids: Ids
    """The hospital of each entry of the problem, ``[H]``."""
    problem: LocalProblem | None
    """What they minimise; None: nobody trains."""
    call: ProgramCall | None = None
    """The client program that they run: by itself, or as the local training of the problem."""
    mixture: Floats | None = None
    """The weights of model rows where ``MIXTURE`` is named, ``[N, M]``."""
    private: Mask | None = None
    """The parameters that never leave a hospital, ``[P]``."""
    division: Division | None = None
    """How rows are cut into groups."""
    losses: bool = False
    """Whether each hospital that trains sends its mean loss before training."""
    steps: tuple[HospitalStep, ...] = ()
    """What becomes of rows, and of what leaves a hospital, in order."""
    serve: dict[str, Ids] = field(default_factory=dict)
    """The models to evaluate: ``{model served: model rows or OWN, [N] or [N, G]}``."""
    untrained: tuple[int, ...] = ()
    """The rows of the models that nobody has trained yet: hospitals that they serve have no figures."""
    losses_of: dict[str, Ids] = field(default_factory=dict)
    """The models whose losses are asked for, likewise."""
    loss_part: str = "train"
    """The part of the rows that they are asked for on."""
    part: str = "test"
    """The rows that they are evaluated on."""
    noise: FigureNoise | None = None
    """The noise on the sums that all figures then come from; None: figures are exact."""
    histograms: bool = False
    """Whether these are asked for too: histograms of scores, for figures of all rows together; sums over pairs of rows,
    for the variance of each hospital's AUROC; of a real label, histograms of errors."""
    thresholds: tuple[float, ...] | None = None
    """The probabilities at which counts of scores per hospital are asked for too; None: no counts."""
    counted: str | None = None
    """The model of which counts of validation rows are asked for in any case; None: none."""
    recalibrating: Recalibrating | None = None
    """How each hospital recalibrates the models that it evaluates; None: it takes them as they are."""
    groups: Grouping | None = None
    """The groups of patients whose figures are asked for too."""
    rearranging: Rearranging | None = None
    """The arrangements of these groups under which the headline model's gaps are asked for too; None: no gaps."""
    predictions: bool = False
    """Whether the models' outputs for all rows of all parts are asked for too."""

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.work.seed

    @property
    def headline(self) -> str:
        """The headline model of those to evaluate, the last one."""
        return list(self.serve)[-1]

    @property
    def bit(self) -> bool:
        """Whether each hospital also sends a bit, which goes into a separate last sum."""
        return any(step.bit for step in self.steps)

    @property
    def remembers(self) -> bool:
        """Whether hospitals remember anything after this round."""
        if self.call is not None and self.problem is None:
            return self.call.remembers
        lasting = self.private is not None or any(step.remembers for step in self.steps)
        return self.problem is not None and (lasting or self.problem.keeps)


@dataclass(frozen=True, eq=False)
class Inquiry:
    """A question to hospitals: every actor answers for those that it serves."""

    work: Work
    """What all rounds have in common."""
    question: Question
    """What is asked."""
    round: int
    """The round in which it is asked; 0: before the first."""
    models: NDArray[Any] | None = None
    """The models that travel with it, ``[M, P]``."""
    ids: Ids | None = None
    """Who is asked; None: all."""
    private: Mask | None = None
    """The parameters ``[P]`` of the models that a hospital replaces by those that it remembers."""
    noise: StatisticNoise | None = None
    """The noise that is added to the answers; None: they are exact."""


@dataclass(eq=False)
class PartialResult:
    """What one actor sends back. Its parameters are sums: their size does not grow with the number of hospitals."""

    units: NDArray[np.int64] | None = None
    """The sums of weighted deltas in fixed point, ``[G, P]``, and of what is sent beside behind them."""
    ids: Ids | None = None
    """The hospitals of the ``h`` entries that trained here, or that answered a call, ``[h]``."""
    sums: NDArray[np.int64] | None = None
    """The sums of a client program one behind the other, and behind them how many answered in each group."""
    each: dict[str, NDArray[Any]] = field(default_factory=dict)
    """By name, what each hospital has sent by itself to a client program's call, ``[h, ...]``."""
    deltas: Floats | None = None
    """Their deltas one by one, ``[h, P]``, where these are asked for."""
    losses: Floats | None = None
    """Their mean losses before training, ``[h]``, where these are asked for."""
    bits: NDArray[np.int64] | None = None
    """The bits of their updates, ``[h]``, where these are compressed."""
    figures: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """Per model served, the figures of the actor's hospitals in its order, ``[h, columns]``."""
    untrained: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    """Per model served, at which of these hospitals nobody has trained it, ``[h]``: it has no figures there."""
    loss_sums: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """Per model whose losses are asked for, the sum of its rows' losses and their number, by hospital: ``[h, 2]``."""
    histograms: dict[str, Any] = field(default_factory=dict)
    """Per model served, the histogram of its scores."""
    pairs: dict[str, PairSums] = field(default_factory=dict)
    """Per model served, the sums over pairs of rows of the actor's hospitals in its order, ``[h]`` each."""
    sketches: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    """Per model served, sketches for the covariance of its AUROC with other models' at the actor's hospitals, ``[h,
    SUMS]``.
    """
    noisy_sums: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """Per model served, where figures are noisy, the sums that they come from, ``[h, width]``."""
    scores: dict[str, ScoreCounts] = field(default_factory=dict)
    """Per model served, the counts of scores of the actor's hospitals in its order."""
    errors: dict[str, ErrorCounts] = field(default_factory=dict)
    """Per model served of a real label, the counts of absolute errors of the actor's hospitals in its order."""
    validation_scores: dict[str, ScoreCounts] = field(default_factory=dict)
    """As ``scores``, of validation rows, on which thresholds are chosen, where figures are of other rows."""
    groups: dict[str, dict[str, GroupFigures]] = field(default_factory=dict)
    """Per model served and attribute, the figures of groups of patients."""
    gaps: dict[str, dict[str, AttributeSums]] = field(default_factory=dict)
    """Of the headline model, by attribute, sums for the gaps between groups within hospitals."""
    predictions: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Per model served, its outputs for all rows of the actor's hospitals in its order, ``[n]`` or ``[n, C]``."""
    own_shifts: OwnShifts | None = None
    """How the actor's hospitals recalibrate, where they do."""
    seconds: float = 0.0
    """How long the actor computed."""

    def join(self, other: PartialResult) -> None:
        """Take over what ``other`` has of further models; both come from one actor."""
        for each in fields(self):
            mine, further = getattr(self, each.name), getattr(other, each.name)
            if isinstance(mine, dict):
                mine.update(further)
        self.seconds += other.seconds
