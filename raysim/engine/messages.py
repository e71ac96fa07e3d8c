"""What travels between the coordinator and hospital actors: one plan down, one partial result up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.data.federation import Federation
from raysim.engine.subgroups import GroupFigures, Grouping
from raysim.strategies.base import Division, Floats, Ids, LocalProblem, Question
from raysim.training.base import Model, Optimizer
from raysim.training.models import build_model

if TYPE_CHECKING:
    from raysim.config.schema import ModelSection

HospitalStates = dict[int, dict[str, NDArray[Any]]]
"""What hospitals remember between rounds: vectors ``[P]`` by hospital id and by what they are."""

MODEL, VARIATE = "model", "variate"
"""A hospital's own model, and its control variate."""


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
        return ModelSpec(section.name, section.class_path, section.own(), section.init)

    def bind(self, federation: Federation, device: str, precision: str) -> Model:
        """The model for this federation's features and classes. Raises ``ConfigError`` for options that it refuses."""
        return build_model(
            self.class_path or self.name or "",
            federation.X.shape[1],
            len(federation.classes),
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
    optimizer: Optimizer
    epochs: int
    seed: int
    precision: str


@dataclass(frozen=True, eq=False)
class RoundPlan:
    """One round for everybody: every actor takes from it what concerns the hospitals it serves.

    ``bank [M, P]`` in the run's precision; ``ids [H]`` the cohort and ``problem`` what it minimises (or no one trains);
    ``mixture [N, M]`` the weights of bank rows where ``MIXTURE`` is named; ``private [P]`` the parameters that never
    leave a hospital; ``division`` how rows are cut into groups; ``losses`` asks for each trained hospital's mean loss
    before training; ``serve`` the models to evaluate, ``{model served: [N] or [N, G] bank rows or OWN}``, on ``part``;
    ``histograms`` asks for the pooled score histograms too, and ``groups`` for figures by patient group.
    """

    work: Work
    round: int
    bank: NDArray[Any]
    ids: Ids
    problem: LocalProblem | None
    mixture: Floats | None = None
    private: NDArray[np.bool_] | None = None
    division: Division | None = None
    losses: bool = False
    serve: dict[str, Ids] = field(default_factory=dict)
    part: str = "test"
    histograms: bool = False
    groups: Grouping | None = None


@dataclass(frozen=True, eq=False)
class Inquiry:
    """A question for everybody: every actor answers for those of hospitals ``ids`` (None: all) that it serves.

    ``models [M, P]`` travel with it; of these the ``private [P]`` parameters are those that a hospital remembers.
    """

    work: Work
    question: Question
    round: int
    models: Floats | None = None
    ids: Ids | None = None
    private: NDArray[np.bool_] | None = None


@dataclass(eq=False)
class PartialResult:
    """What one actor sends back. Its parameters are sums: their size does not grow with the number of hospitals.

    ``units [G, P]`` fixed-point sums of weighted deltas; ``ids [h]`` the hospitals that trained here, with ``deltas
    [h, P]`` and ``losses [h]`` where these are asked for by hospital; ``figures`` per model served ``[h, columns]``
    for the actor's hospitals in its order; ``histograms`` per model served; ``groups`` per model served and patient
    attribute; ``seconds`` of computing.
    """

    units: NDArray[np.int64] | None = None
    ids: Ids | None = None
    deltas: Floats | None = None
    losses: Floats | None = None
    figures: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    histograms: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, dict[str, GroupFigures]] = field(default_factory=dict)
    seconds: float = 0.0
