"""Ditto: each hospital trains a second, own model with a proximal term towards the global model.

T. Li, S. Hu, A. Beirami, V. Smith: *Ditto: Fair and Robust Federated Learning Through Personalization*, ICML 2021,
Algorithm 1; details follow the authors' code.

A participant takes part in federated averaging of ``w``. Then, with other batches, it continues to train its own model
on ``L_i(v) + lam/2 |v - w^t|^2``, where ``w^t`` is the model that it received. ``v`` starts at the common initial model
and stays at its hospital; ``w`` equals federated averaging for any λ.

Choice: hospitals without training rows cannot have their own model and use ``w``. Traffic: as federated averaging; per
participant P scalars down, P + 1 up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from raysim.strategies.base import (
    OWN,
    FederationView,
    Floats,
    Ids,
    LocalProblem,
    LocalTraining,
    NonNegativeFloat,
    NonNegativeInt,
    Objective,
    Proximal,
    State,
    Update,
    Upload,
)
from raysim.strategies.shared.weights import Weighted


@dataclass(frozen=True)
class Ditto(Weighted):
    """Own models with a proximal term towards the global model (Ditto); weights as in FedAvg.

    Row 1 of the models is the common initial model.
    """

    lam: NonNegativeFloat = 1.0
    """λ: the weight of the proximal term between a hospital's own model and the global model."""
    epochs: NonNegativeInt | None = 1
    """Epochs of the own model in a round; null means ``training.local_epochs``."""
    learning_rate: NonNegativeFloat | None = None
    """Learning rate of the own model; null means ``training.learning_rate``."""

    def setup(self, view: FederationView) -> State:
        return State(models=np.stack([view.initial, view.initial]))

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        received = np.zeros_like(ids)
        personal = LocalProblem(
            start=np.full_like(ids, OWN),
            objective=Objective(proximal=(Proximal(self.lam, received),)),
            training=LocalTraining(epochs=self.epochs, learning_rate=self.learning_rate, keep=True),
        )
        weight = self.weigh(view.sizes[ids])
        return LocalProblem(start=received, upload=Upload(weight), then=personal)

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        return replace(state, models=np.stack([state.models[0] + update.sums[0], state.models[1]]))

    def mixture(self, view: FederationView, state: State) -> Floats:
        """Return the weights 0 and 1: each hospital's own model starts from row 1, the common initial model."""
        return np.tile([0.0, 1.0], (len(view.sizes), 1))

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        everyone = np.zeros(len(view.sizes), dtype=np.int64)
        return {"global": everyone, "personal": np.where(view.sizes > 0, OWN, 0)}
