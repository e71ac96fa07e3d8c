"""MOON: a hospital's representations of its patients are drawn to the federated model's, and away from its old ones.

Q. Li, B. He, D. Song: *Model-Contrastive Federated Learning*, CVPR 2021, Algorithm 1.

A participant minimises ``L_i + mu * con`` from the model that it received, where ``con`` is the mean over a batch of
``softplus((cos(z, z_prev) - cos(z, z_glob)) / tau)``: z is the representation of a row, the input of the last layer, by
the model being trained, z_glob that by the received model, and z_prev that by the hospital's own model after its last
participation (at its first the received model, where ``con`` has no gradient). μ = 0 is federated averaging.

Needs a model of at least two layers. The paper's extra projection head is left out: a model is what the user gives.
Traffic: as federated averaging; per participant P scalars down, P + 1 up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from raysim.strategies.base import (
    FederationView,
    Ids,
    LocalProblem,
    LocalTraining,
    Objective,
    State,
    Training,
    Upload,
    at_least,
)
from raysim.strategies.personal.heads import layers
from raysim.strategies.shared.weights import Weighted


@dataclass(frozen=True)
class Moon(Weighted):
    """``mu``: μ, ``temperature``: τ; weights as FedAvg."""

    title: ClassVar[str] = "MOON"

    mu: float = 1.0
    """μ: the weight of the contrast between representations in the loss."""
    temperature: float = 0.5
    """τ of the contrast."""

    def __post_init__(self) -> None:
        at_least("mu", self.mu, 0)
        if not self.temperature > 0:
            raise ValueError(f"temperature: {self.temperature} is not greater than 0")
        super().__post_init__()

    def check_training(self, training: Training) -> None:
        if len(layers(training.parameters)) < 2:
            raise ValueError(
                "model: strategy moon compares what models make of a row below their last layer, and this one has a "
                "single layer; choose mlp with hidden layers, a module, or another strategy"
            )

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return LocalProblem(
            start=np.zeros_like(ids),
            upload=Upload(self.weigh(view.sizes[ids])),
            objective=Objective(contrast=(self.mu, self.temperature) if self.mu else None),
            training=LocalTraining(keep=True),
        )
