"""Training at every hospital alone: the reference that federating has to beat.

Each hospital trains for as many epochs as if it took part in every round of a federated strategy. The optimiser's state
is not reset between rounds. With ``solve: true`` each hospital fits a regression to convergence in the first round. The
ridge penalty is 1, 10 or 100, whichever has the smallest leave-one-out loss on the hospital's rows. If all these rows
have the same class, the model predicts the shares of the classes, with half a row added to each class. There is no
traffic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from raysim.strategies.base import (
    OWN,
    Call,
    Calls,
    Context,
    FederationView,
    Ids,
    Keep,
    LocalProblem,
    LocalTraining,
    Program,
    Reply,
    Send,
    State,
    Strategy,
    Training,
    own_state,
)
from raysim.strategies.regressions.families import FAMILIES
from raysim.strategies.regressions.left_out import shrunk
from raysim.strategies.regressions.sums_program import check_linear, design, family_of
from raysim.strategies.trees.whole import LocalTrees

RIDGES = (1.0, 10.0, 100.0)
"""The ridge penalties among which a hospital chooses. They suit standardised features."""


@dataclass(frozen=True, eq=False)
class LocalState(State):
    """The state of local training. ``solved``: whether every hospital has fitted its regression to convergence."""

    solved: bool = False


@dataclass(frozen=True)
class OwnRegression(Program):
    """A program that fits a hospital's own regression."""

    family: str
    p: int
    name: str = "own regression"

    @property
    def sends(self) -> Mapping[str, Send]:
        return {}

    @property
    def keeps(self) -> Mapping[str, Keep]:
        return {"model": Keep((self.p,))}

    def run(self, at: Context) -> Reply:
        X, y, family = design(at.rows.X), at.rows.y.astype(np.float64), FAMILIES[self.family]
        if self.family == "logistic" and y.min() == y.max():
            beta = np.zeros(self.p)
            beta[0] = np.log((y.sum() + 0.5) / ((1 - y).sum() + 0.5))
        else:
            beta = shrunk(family, X, y, RIDGES).best
        model = np.zeros(self.p)
        model[at.model.parameters["bias"]], model[at.model.parameters["weight"]] = beta[:1], beta[1:]
        return Reply({}, {"model": model})


@dataclass(frozen=True)
class Local(Strategy):
    """Local training at each hospital; ``solve`` is for regressions."""

    title: ClassVar[str] = "Training alone"
    alone: ClassVar[bool] = True
    is_reference: ClassVar[bool] = True
    serves = ("personal",)

    solve: bool = False
    """Whether each hospital solves a regression to convergence, instead of training by gradient steps."""

    def check_training(self, training: Training) -> None:
        if self.solve:
            check_linear(training, "local with solve")

    def uses_selection(self) -> bool:
        return False

    def uses_training(self) -> bool:
        return not self.solve

    def unused_training(self) -> frozenset[str]:
        return super().unused_training() | ({"rounds"} if self.solve else set())

    def unused_when_pooled(self) -> frozenset[str]:
        return frozenset()

    def uses_programs(self) -> bool:
        return self.solve

    def setup(self, view: FederationView) -> State:
        return LocalState(models=view.initial[None].copy()) if self.solve else super().setup(view)

    def round(self, view: FederationView, state: State) -> Calls:
        if not self.solve:
            return (yield from super().round(view, state))
        program = OwnRegression(family_of(view).name, len(view.initial))
        yield Call(program, {}, view.trainable)
        return replace(own_state(state, LocalState), solved=True)

    def done(self, view: FederationView, state: State) -> bool:
        return self.solve and own_state(state, LocalState).solved

    def select(self, view: FederationView, state: State, round: int) -> Ids:
        return view.trainable

    def with_trees(self) -> Strategy:
        if self.solve:
            raise ValueError("solve: true solves regressions, but the model is boosted trees; leave solve out")
        return LocalTrees()

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return LocalProblem(start=np.full_like(ids, OWN), training=LocalTraining(keep=True, carry=True))
