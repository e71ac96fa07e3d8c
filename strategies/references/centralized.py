"""Training on all rows in one place: a reference without the privacy of federating.

The model trains on the pooled training rows of all hospitals, for as many epochs as a hospital that takes part in every
round of a federated strategy. The optimiser's state is not reset between rounds. With ``solve: true`` a regression is
solved to convergence by the strategy ``newton``. Traffic: every hospital sends its training rows once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from raysim.strategies.base import (
    POOLED,
    Calls,
    FederationView,
    Ids,
    LocalProblem,
    LocalTraining,
    Needs,
    State,
    Strategy,
    Training,
    Uncertainty,
    Upload,
)
from raysim.strategies.regressions.newton import Newton
from raysim.strategies.trees.federated import PooledTrees


@dataclass(frozen=True)
class PooledNewton(Newton):
    """A regression fitted by Newton's method to the pooled rows of all hospitals."""

    def select(self, view: FederationView, state: State, round: int) -> Ids:
        return np.array([int(POOLED)])


SOLVER = PooledNewton()


@dataclass(frozen=True)
class Centralized(Strategy):
    """Training on the pooled rows of all hospitals; ``solve`` is for regressions."""

    title: ClassVar[str] = "Pooled training"
    needs: ClassVar[Needs] = Needs.more("sends every row")

    is_reference: ClassVar[bool] = True

    solve: bool = False
    """Whether a regression is solved to convergence, instead of trained by gradient steps."""

    def check_training(self, training: Training) -> None:
        if self.solve:
            SOLVER.check_training(training)

    def uses_selection(self) -> bool:
        return False

    def uses_training(self) -> bool:
        return not self.solve

    def uses_programs(self) -> bool:
        return self.solve

    def setup(self, view: FederationView) -> State:
        return SOLVER.setup(view) if self.solve else super().setup(view)

    def round(self, view: FederationView, state: State) -> Calls:
        return (yield from (SOLVER.round(view, state) if self.solve else super().round(view, state)))

    def done(self, view: FederationView, state: State) -> bool:
        return self.solve and SOLVER.done(view, state)

    def select(self, view: FederationView, state: State, round: int) -> Ids:
        return np.array([POOLED])

    def with_trees(self) -> Strategy:
        if self.solve:
            raise ValueError("solve: true solves regressions, but the model is boosted trees; leave solve out")
        return PooledTrees()

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return LocalProblem(start=np.zeros_like(ids), upload=Upload(np.ones(1)), training=LocalTraining(carry=True))

    def uncertainty(self, view: FederationView, state: State) -> Uncertainty | None:
        return SOLVER.uncertainty(view, state) if self.solve else None

    def facts(self, view: FederationView, state: State) -> dict[str, float]:
        return SOLVER.facts(view, state) if self.solve else {}
