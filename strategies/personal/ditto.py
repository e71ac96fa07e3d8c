"""Ditto: each hospital trains a second, own model with a proximal term towards the global model.

T. Li, S. Hu, A. Beirami, V. Smith: *Ditto: Fair and Robust Federated Learning Through Personalization*, ICML 2021,
Algorithm 1; details follow the authors' code.

A participant first trains the global model ``w`` as in federated averaging. Then, on other batches, it trains its own
model ``v`` with the loss ``L_i(v) + lam/2 |v - w^t|^2``. ``L_i`` is the training loss, and ``w^t`` the received model.
``v`` starts at the common initial model and stays at the hospital.

Our choice: hospitals without training rows use ``w``.

Traffic of a round: the server sends the P parameters of the global model to each participant. Each participant sends
back P numbers and its number of training rows.
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
    """Own models with a proximal term towards the global model (Ditto); hospitals are weighted as in FedAvg.

    The server stores two models: row 0 is the global model, and row 1 the common initial model.
    """

    lam: NonNegativeFloat = 1.0
    """λ: the weight of the proximal term between a hospital's own model and the global model."""
    epochs: NonNegativeInt | None = 1
    """The number of epochs for which the own model is trained in a round; null means ``training.local_epochs``."""
    learning_rate: NonNegativeFloat | None = None
    """Learning rate of the own model; null means ``training.learning_rate``."""

    def setup(self, view: FederationView) -> State:
        return State(models=np.stack([view.initial, view.initial]))

    def unused_when_pooled(self) -> frozenset[str]:
        own = {"batch_size"} | ({"local_epochs"} if self.epochs is None else set())
        return super().unused_when_pooled() - own

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
        """Return the weights of the server's two models in each hospital's mixture, ``[N, 2]``. Every own model starts
        from the common initial model."""
        return np.tile([0.0, 1.0], (len(view.sizes), 1))

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        everyone = np.zeros(len(view.sizes), dtype=np.int64)
        return {"global": everyone, "personal": np.where(view.sizes > 0, OWN, 0)}
