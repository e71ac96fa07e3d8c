"""The messages between the coordinator and the actors that simulate hospitals: instructions to the actors, and one
result from each actor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.early_stopping import Stop
from raysim.data.federation import Federation
from raysim.engine.measuring.measurement import NOTHING, Measured, Measurement
from raysim.strategies.base import Division, Floats, Ids, LocalProblem, Mask, Program
from raysim.training.base import Model, Optimizer
from raysim.training.class_weights import ClassWeights
from raysim.training.models import build_model

if TYPE_CHECKING:
    from raysim.config.sections.plugin_sections import ModelSection
    from raysim.engine.messages.program_sums import SumLayout
    from raysim.engine.messages.steps import HospitalStep


@dataclass(frozen=True)
class ModelSpec:
    """The model of a run: its registered name or import path, and its options."""

    name: str | None
    class_path: str | None
    options: dict[str, Any]
    init: str

    @staticmethod
    def of(section: ModelSection) -> ModelSpec:
        """Return the specification of the model that a configuration names."""
        return ModelSpec(section.name, section.class_path, section.options(), section.init)

    def bind(self, federation: Federation, device: str, precision: str) -> Model:
        """Build the model for this federation's features and classes. Raises ``ConfigError`` for options that the model
        rejects.
        """
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
    """The settings shared by all rounds of a run. They are sent in each round, so that actors need not store
    anything.
    """

    federation: str
    """The folder of the federation."""
    model: ModelSpec
    optimizer: Optimizer
    """The optimiser, unless a local problem names another one."""
    epochs: int
    """The number of epochs of a hospital's local update, unless a local problem sets another number."""
    seed: int
    precision: str
    """The type of hospitals' parameters: ``float32`` or ``float64``."""
    class_weights: ClassWeights = "none"
    """How the loss is weighted by class. Hospitals receive numbers in place of ``balanced``."""


@dataclass(frozen=True, eq=False)
class ProgramCall:
    """A client program that hospitals run, with the arrays that it receives."""

    program: Program
    name: str
    """The name of the call in error messages."""
    turn: int
    """The number of earlier calls of a program with the same name in the same round."""
    received: dict[str, NDArray[Any]]
    """The arrays that every called hospital receives, by name."""
    each_of: dict[str, NDArray[Any]]
    """Arrays ``[H, ...]`` by name. Each of the ``H`` called hospitals receives only its own row."""
    terms: dict[str, int]
    """The number of terms in the sum of each array that hospitals send, by name: one term for each called hospital, or
    one for each of their training rows if each row contributes to the array."""

    @property
    def remembers(self) -> bool:
        """Whether hospitals store arrays for the program from one round to the next."""
        return self.program.remembers


@dataclass(frozen=True, eq=False)
class RoundPlan:
    """The instructions of one round for all hospitals. Every actor receives all of them."""

    work: Work
    round: int
    models: NDArray[Any]
    """The server's ``M`` models, ``[M, P]``, in the run's precision. The shape is ``[0, P]`` if the round neither
    evaluates nor trains, and ``[0, 0]`` for a client program outside a round's training."""
    ids: Ids
    """The id of the hospital that makes each of the ``H`` local updates or program runs, ``[H]``."""
    problem: LocalProblem | None
    """The local problem that hospitals minimise; None means no training."""
    call: ProgramCall | None = None
    """The client program that hospitals run, instead of built-in local training if ``problem`` is given; None means no
    program."""
    mixture: Floats | None = None
    """The weights of the ``M`` server models in the mixture (``MIXTURE``) of each hospital, ``[N, M]``; None without
    mixtures."""
    private: Mask | None = None
    """A mask of the parameters that never leave a hospital, ``[P]``; None without such parameters."""
    division: Division | None = None
    """The rule that divides rows into groups with models of their own; None means no groups."""
    losses: bool = False
    """Whether each hospital that trains also sends its mean training loss before the update."""
    steps: tuple[HospitalStep, ...] = ()
    """The steps that change a hospital's rows and messages, in order."""
    measured: Measurement = NOTHING
    """What hospitals evaluate before they train."""
    stop: Stop | None = None
    """The rule for early stopping of hospitals that add trees on their own; None means no early stopping."""

    @property
    def bit(self) -> bool:
        """Whether each hospital also sends one bit: 1/2 if the norm of its update is within the clipping bound, else
        -1/2.
        """
        return any(step.bit for step in self.steps)

    @property
    def at_once(self) -> bool:
        """Whether these instructions are for a client program outside a round's training."""
        return bool(self.models.shape[1] == 0)

    @property
    def only_reads(self) -> bool:
        """Whether hospitals only run a client program that stores nothing."""
        # In local training, steps may store something even if the program does not.
        return self.problem is None and self.call is not None and not self.call.remembers

    @property
    def remembers(self) -> bool:
        """Whether hospitals store anything between this round and the next."""
        if self.call is not None and self.problem is None:
            return self.call.remembers
        lasting = self.private is not None or any(step.remembers for step in self.steps)
        return self.problem is not None and (lasting or self.problem.keeps)


@dataclass(eq=False)
class PartialResult:
    """What one actor returns after a round. The size of its sums does not grow with the number of hospitals."""

    units: NDArray[np.int64] | None = None
    """The weighted sums of hospitals' updates as integers in fixed point, ``[G, P]``, then rows with the sums of
    further numbers that hospitals send."""
    ids: Ids | None = None
    """The id of the hospital that made each of the actor's ``h`` local updates or program runs, ``[h]``."""
    sums: NDArray[np.int64] | None = None
    """The sums of a client program, concatenated as in :class:`raysim.engine.messages.program_sums.SumLayout`."""
    each: dict[str, NDArray[Any]] = field(default_factory=dict)
    """The arrays that each hospital sent separately in a client program, ``[h, ...]``, by name."""
    deltas: Floats | None = None
    """The change of the parameters in each local update, ``[h, P]``; None if not requested."""
    losses: Floats | None = None
    """The mean loss before each local update, ``[h]``; None if not requested."""
    bits: NDArray[np.int64] | None = None
    """The number of bits of each local update's message, ``[h]``; None without compression."""
    measured: Measured = field(default_factory=Measured)
    """The evaluation results, in the actor's order of hospitals."""
    seconds: float = 0.0


def collected(partials: Sequence[PartialResult], layout: SumLayout) -> tuple[Ids, dict[str, NDArray[np.float64]]]:
    """Return the ids ``[H]`` of the hospitals that ran a client program, ascending, and the arrays ``[H, ...]`` that
    each of them sent separately, by name.
    """
    answered = [partial for partial in partials if partial.ids is not None]
    ids = np.concatenate([np.zeros(0, np.int64), *[part.ids for part in answered if part.ids is not None]])
    order, each = np.argsort(ids, kind="stable"), {}
    for name, send in layout.each.items():
        sent = [part.each[name] for part in answered if name in part.each]
        each[name] = np.concatenate([np.zeros((0, *send.shape)), *sent])[order]
    return ids[order], each
