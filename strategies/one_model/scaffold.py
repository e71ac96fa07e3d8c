"""SCAFFOLD: control variates take each hospital's own drift out of its steps.

S. P. Karimireddy, S. Kale, M. Mohri, S. J. Reddi, S. U. Stich, A. T. Suresh: *SCAFFOLD: Stochastic Controlled Averaging
for Federated Learning*, ICML 2020, Algorithm 1.

A participant receives θ and c and takes K steps ``y <- y - eta_l (g_i(y) - c_i + c)`` from θ. Then it renews its own
variate: from its steps, ``c_i+ = c_i - c + (theta - y) / (K eta_l)`` (option II), or as the full-batch gradient at θ
(option I). ``theta <- theta + eta_g sum_S w_i (y_i - theta)`` with uniform weights as in the paper, or by rows;
``c <- c + (1/N) sum_S (c_i+ - c_i)`` with N all hospitals, so that c stays the mean of all c_i. Variates start at 0,
which makes the first round that of federated averaging.

The local optimiser is plain SGD: with another, a step is no gradient, and c_i would not be one.
Traffic: per participant 2 P scalars down, 2 P + 1 up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from raysim.strategies.base import (
    FederationView,
    Ids,
    LocalProblem,
    State,
    Strategy,
    Training,
    Update,
    Variates,
    at_least,
    one_of,
)
from raysim.strategies.shared.weights import Weighting, check_weighting, hospital_weights


@dataclass(frozen=True)
class Scaffold(Strategy):
    """``server_rate``: η_g; ``renew`` variates from ``steps`` (option II) or the ``gradient`` (I); weights as FedAvg.

    In the bank, row 1 is c.
    """

    server_rate: float = 1.0
    renew: Literal["steps", "gradient"] = "steps"
    weights: Weighting = "uniform"
    minimum_weight: float = 0.01

    def __post_init__(self) -> None:
        at_least("server_rate", self.server_rate, 0)
        one_of("renew", self.renew, ("steps", "gradient"))
        check_weighting(self.weights, self.minimum_weight)

    def check_training(self, training: Training) -> None:
        if training.optimizer != "sgd":
            raise ValueError(
                f"training.optimizer: strategy scaffold corrects the steps of plain SGD, not '{training.optimizer}'; "
                "set sgd"
            )

    def setup(self, view: FederationView) -> State:
        return State(bank=np.stack([view.initial, np.zeros_like(view.initial)]))

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        mean = np.full(len(ids), 1.0 / len(view.sizes))
        return LocalProblem(
            start=np.zeros_like(ids),
            weight=hospital_weights(view.sizes[ids], self.weights, self.minimum_weight),
            sums=2,
            variates=Variates(server=1, weight=mean, into=1, renew=self.renew),
        )

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        theta, variate = update.sums
        return replace(state, bank=state.bank + np.stack([self.server_rate * theta, variate]))
