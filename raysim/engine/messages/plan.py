"""What travels between the coordinator and hospital actors: one plan down, one partial result up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.data.federation import Federation
from raysim.engine.measuring.measurement import NOTHING, Measured, Measurement, StatisticNoise
from raysim.strategies.base import Division, Floats, Ids, LocalProblem, Mask, Program, Question
from raysim.training.base import Model, Optimizer
from raysim.training.class_weights import ClassWeights
from raysim.training.models import build_model

if TYPE_CHECKING:
    from raysim.config.sections.plugin_sections import ModelSection
    from raysim.engine.messages.steps import HospitalStep


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

    @property
    def remembers(self) -> bool:
        """Whether hospitals remember anything of it."""
        return self.program.remembers


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
    measured: Measurement = NOTHING
    """What hospitals measure before they train."""

    @property
    def bit(self) -> bool:
        """Whether each hospital also sends a bit, which goes into a separate last sum."""
        return any(step.bit for step in self.steps)

    @property
    def only_reads(self) -> bool:
        """Whether what hospitals remember stays as it is, so that it need not be returned."""
        return self.call is not None and not self.call.remembers

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
    measured: Measured = field(default_factory=Measured)
    """What the actor's hospitals have measured, in its order."""
    seconds: float = 0.0
    """How long the actor computed."""
