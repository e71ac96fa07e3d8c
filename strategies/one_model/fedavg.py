"""Federated averaging.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas: *Communication-Efficient Learning of Deep Networks
from Decentralized Data*, AISTATS 2017, Algorithm 1.

A round: a cohort S trains locally from the global model; ``theta <- theta + sum_S w_i * delta_i``.
Traffic per participant: P scalars down, P + 1 up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raysim.strategies.base import FederationView, Ids, LocalProblem, State, Strategy, Upload
from raysim.strategies.shared.weights import Weighting, check_weighting, hospital_weights


@dataclass(frozen=True)
class FedAvg(Strategy):
    """``weights``: by ``samples`` (the paper), ``uniform``, or a ``floor`` of ``minimum_weight`` for small sites."""

    weights: Weighting = "samples"
    minimum_weight: float = 0.01

    def __post_init__(self) -> None:
        check_weighting(self.weights, self.minimum_weight)

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        weight = hospital_weights(view.sizes[ids], self.weights, self.minimum_weight)
        return LocalProblem(start=np.zeros_like(ids), upload=Upload(weight))
