"""Federated averaging whose hospitals train by a client program of the strategy's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from raysim.strategies.base import Call, Calls, FederationView, Floats, Needs, Program, Send, State, Training
from raysim.strategies.shared.weights import Weighted

UNBOUNDED = Needs.more("sends sums of a client program, which no clip bounds")
"""What privacy guarantees have to know of such strategies."""


@dataclass(frozen=True)
class AveragedTraining(Program):
    """A program whose hospitals receive ``theta [P]`` and their ``weight``, and send ``weight`` times their delta."""

    size: int
    """P."""

    @property
    def sends(self) -> Mapping[str, Send]:
        return {"delta": Send((self.size,)), "weight": Send(kind="size")}


@dataclass(frozen=True)
class CountedTraining(Program):
    """A program whose hospitals receive ``theta [P]``, and send their delta and 1."""

    size: int
    """P."""

    @property
    def sends(self) -> Mapping[str, Send]:
        return {"delta": Send((self.size,)), "hospitals": Send(kind="size", bits=0)}


@dataclass(frozen=True, kw_only=True)
class ProgramAverage(Weighted):
    """A strategy whose global model moves by the weighted mean of the deltas that its ``program`` makes."""

    needs = UNBOUNDED

    def program(self, view: FederationView) -> AveragedTraining:
        """What each participant runs."""
        raise NotImplementedError

    def check_training(self, training: Training) -> None:
        check_plain(training, type(self).__name__)

    def round(self, view: FederationView, state: State) -> Calls:
        ids = self.select(view, state, view.round)
        weight = {"weight": self.weigh(view.sizes[ids])}
        answers = yield Call(self.program(view), {"theta": state.models[0]}, ids, weight)
        return replace(state, models=state.models + mean_delta(answers.sums))


def mean_delta(sums: Mapping[str, Floats]) -> Floats:
    """The weighted mean of the deltas ``[P]``; 0 where nobody has answered."""
    weight = float(sums["weight"])
    return sums["delta"] / weight if weight else sums["delta"]


def check_plain(training: Training, name: str) -> None:
    """Raise ``ValueError`` unless hospitals take plain steps of gradient descent; ``name`` is the strategy's."""
    if training.optimizer != "sgd":
        raise ValueError(f"training.optimizer: {name} is defined for sgd, not for {training.optimizer}; use sgd")
