"""MOON: a loss draws representations to those of the global model, away from those of the hospital's last model.

Q. Li, B. He, D. Song: *Model-Contrastive Federated Learning*, CVPR 2021, Algorithm 1.

A participant minimises ``L_i + mu * con`` from the model that it received, with ``L_i`` its mean loss. ``con`` is the
mean over a batch of ``softplus((cos(z, z_prev) - cos(z, z_glob)) / tau)``. The representation of a row is the input of
a model's last layer. Here z is the representation by the model being trained, and z_glob the representation by the
received model. z_prev is the representation by the model that the hospital trained in its last participation; in the
first participation, it equals z_glob. μ = 0 is federated averaging.

The model needs at least two layers. The paper's extra projection head is left out. Traffic as in federated averaging:
each participant receives the model's P scalars, and sends back P scalars and the number of its training rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from raysim.strategies.base import (
    FederationView,
    Ids,
    Limit,
    LocalProblem,
    LocalTraining,
    NonNegativeFloat,
    Objective,
    State,
    Training,
    Upload,
    above,
)
from raysim.strategies.personal.heads import layers
from raysim.strategies.shared.weights import Weighted


@dataclass(frozen=True)
class Moon(Weighted):
    """Federated averaging with a contrastive loss (MOON); hospitals are weighted as in FedAvg."""

    title: ClassVar[str] = "MOON"

    mu: NonNegativeFloat = 1.0
    """μ: the weight of the contrastive term in the loss."""
    temperature: Annotated[float, Limit(above, 0, finite=False)] = 0.5
    """τ: the temperature of the contrastive term."""

    def check_training(self, training: Training) -> None:
        if len(layers(training.parameters)) < 2:
            raise ValueError(
                "model: strategy moon compares models' outputs below the last layer, but this model has a single "
                "layer; choose mlp with hidden layers, a module, or another strategy"
            )

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return LocalProblem(
            start=np.zeros_like(ids),
            upload=Upload(self.weigh(view.sizes[ids])),
            objective=Objective(contrast=(self.mu, self.temperature) if self.mu else None),
            training=LocalTraining(keep=True),
        )
