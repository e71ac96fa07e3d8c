"""FedAvgM: federated averaging with momentum at the server.

T.-M. H. Hsu, H. Qi, M. Brown: *Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification*, arXiv:1909.06335, 2019, section 3.

With ``D`` the averaged delta of a round: ``v <- momentum v + D``, ``theta <- theta + server_learning_rate v``. There is
no factor ``1 - momentum`` and no Nesterov step. The paper does not give a server learning rate; it is 1 here.
Traffic as federated averaging: P scalars down, P + 1 up per participant; the velocity stays at the server.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raysim.strategies.base import (
    FederationView,
    Floats,
    Ids,
    LocalProblem,
    State,
    Strategy,
    Update,
    at_least,
    own_state,
)
from raysim.strategies.one_model.server_optimizer import averaging_problem, check_decay
from raysim.strategies.shared.weights import Weighting, check_weighting


@dataclass(frozen=True, eq=False, kw_only=True)
class MomentumState(State):
    """``velocity [P]``: v."""

    velocity: Floats


@dataclass(frozen=True)
class FedAvgM(Strategy):
    """``momentum``: β; ``server_learning_rate``: η_s; weights as FedAvg."""

    momentum: float = 0.7
    server_learning_rate: float = 1.0
    weights: Weighting = "samples"
    minimum_weight: float = 0.01

    def __post_init__(self) -> None:
        check_decay("momentum", self.momentum)
        at_least("server_learning_rate", self.server_learning_rate, 0)
        check_weighting(self.weights, self.minimum_weight)

    def setup(self, view: FederationView) -> MomentumState:
        return MomentumState(bank=view.initial[None, :].copy(), velocity=np.zeros_like(view.initial))

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return averaging_problem(view, ids, self.weights, self.minimum_weight)

    def aggregate(self, view: FederationView, state: State, update: Update) -> MomentumState:
        velocity = self.momentum * own_state(state, MomentumState).velocity + update.sums[0]
        return MomentumState(bank=state.bank + self.server_learning_rate * velocity, velocity=velocity)
