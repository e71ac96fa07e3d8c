"""FedAvgM: federated averaging with momentum at the server.

T.-M. H. Hsu, H. Qi, M. Brown: *Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification*, arXiv:1909.06335, 2019, section 3.

With ``D`` the averaged delta of a round (the change of the participants' parameters): ``v <- momentum v + D``,
``theta <- theta + server_learning_rate v``. The paper has no server learning rate; the default is 1. Traffic as in
federated averaging: each participant receives the model's P scalars, and sends back P scalars and the number of its
training rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raysim.strategies.base import BelowOne, FederationView, Floats, NonNegativeFloat, State, Update, own_state
from raysim.strategies.shared.weights import Weighted


@dataclass(frozen=True, eq=False, kw_only=True)
class MomentumState(State):
    """The state of FedAvgM between rounds, with the momentum buffer ``velocity [P]``."""

    velocity: Floats


@dataclass(frozen=True)
class FedAvgM(Weighted):
    """Federated averaging with momentum at the server (FedAvgM); the fields are its settings."""

    momentum: BelowOne = 0.7
    """β: the momentum."""
    server_learning_rate: NonNegativeFloat = 1.0
    """The step size of the server."""

    def setup(self, view: FederationView) -> MomentumState:
        return MomentumState(models=view.initial[None, :].copy(), velocity=np.zeros_like(view.initial))

    def aggregate(self, view: FederationView, state: State, update: Update) -> MomentumState:
        velocity = self.momentum * own_state(state, MomentumState).velocity + update.sums[0]
        return MomentumState(models=state.models + self.server_learning_rate * velocity, velocity=velocity)
