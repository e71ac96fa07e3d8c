"""FedYogi: an adaptive server whose second moment moves by no more than the newest square.

S. J. Reddi, Z. Charles, M. Zaheer, Z. Garrett, K. Rush, J. Konečný, S. Kumar, H. B. McMahan: *Adaptive Federated
Optimization*, ICLR 2021, Algorithm 2 (FedYogi).

With ``D`` the averaged delta: ``m <- beta_1 m + (1 - beta_1) D``,
``v <- v - (1 - beta_2) D^2 sign(v - D^2)``, ``theta <- theta + server_learning_rate m / (sqrt(v) + tau)``. Deviations:
``v`` starts at 0, as in Flower and FedLab, where the paper asks for at least ``tau^2`` (``initial_accumulator: tau2``);
deltas are weighted by rows, as in Flower, where the paper's are not (``weights: uniform``). The paper's client rate η_l
is ``training.learning_rate`` with the optimizer ``sgd``; beside another optimizer it has no counterpart. Defaults are
the best of Clust-PSI-PFL's grid.
Traffic as federated averaging: P scalars down, P + 1 up per participant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raysim.strategies.base import FederationView, Ids, LocalProblem, State, Strategy, Update
from raysim.strategies.one_model.server_optimizer import (
    AdaptiveState,
    InitialAccumulator,
    adaptive_state,
    adaptive_step,
    averaging_problem,
    check_adaptive,
    check_decay,
)
from raysim.strategies.shared.weights import Weighting


@dataclass(frozen=True)
class FedYogi(Strategy):
    """``server_learning_rate``: η, ``beta_1``: β_1, ``beta_2``: β_2, ``tau``: τ, ``initial_accumulator``: v_0."""

    server_learning_rate: float = 0.001
    beta_1: float = 0.9
    beta_2: float = 0.99
    tau: float = 0.01
    initial_accumulator: InitialAccumulator = "zero"
    weights: Weighting = "samples"
    minimum_weight: float = 0.01

    def __post_init__(self) -> None:
        check_decay("beta_1", self.beta_1)
        check_decay("beta_2", self.beta_2)
        check_adaptive(self.server_learning_rate, self.tau, self.initial_accumulator, self.weights, self.minimum_weight)

    def setup(self, view: FederationView) -> AdaptiveState:
        return adaptive_state(view, self.tau, self.initial_accumulator)

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return averaging_problem(view, ids, self.weights, self.minimum_weight)

    def aggregate(self, view: FederationView, state: State, update: Update) -> AdaptiveState:
        return adaptive_step(
            state,
            update,
            rate=self.server_learning_rate,
            beta_1=self.beta_1,
            tau=self.tau,
            accumulate=lambda v, squares: v - (1.0 - self.beta_2) * squares * np.sign(v - squares),
        )
