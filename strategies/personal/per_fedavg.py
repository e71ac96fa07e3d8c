"""Per-FedAvg: a common initial model that one gradient step adapts to any hospital, by first-order MAML.

A. Fallah, A. Mokhtari, A. Ozdaglar: *Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic
Meta-Learning Approach*, NeurIPS 2020, Algorithm 1, first-order approximation.

A participant updates the model by ``w -= rate * grad(w - alpha grad(w; k); k')``, where ``k`` and ``k'`` are two
batches of its rows, sampled with different random streams. After the last round every hospital takes one gradient step
on all its training rows, with the step size ``alpha``, and uses the result. The library PFLlib continues from the
adapted parameters instead of from ``w``.

Traffic of a round: the server sends the P parameters of the global model to each participant. Each participant sends
back P numbers and its number of training rows. Each update needs two gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raysim.strategies.base import (
    Context,
    FederationView,
    Floats,
    LocalProblem,
    LocalTraining,
    NonNegativeFloat,
    Reply,
    State,
)
from raysim.strategies.shared.program_average import DeltaTraining, ProgramAverage


@dataclass(frozen=True)
class MetaTraining(DeltaTraining):
    """Local training of the common model. Each gradient is taken after a step that adapts the model to the hospital."""

    alpha: float
    name: str = "per_fedavg"

    def run(self, at: Context) -> Reply:
        start, n = at.received["theta"], len(at.rows.y)
        w: Floats = start.astype(np.float64)
        others, ahead = at.rng("other batches"), w
        for batch in at.model.batches():
            if self.alpha:
                other = others.choice(n, len(batch), replace=False)
                ahead = w - self.alpha * at.model.gradient(w, other)
            w = w - at.model.learning_rate * at.model.gradient(ahead if self.alpha else w, batch)
        return Reply({"delta": w - start})


@dataclass(frozen=True)
class PerFedAvg(ProgramAverage):
    """Federated averaging of a model for adaptation in one step (Per-FedAvg). Hospitals' weights are as in FedAvg."""

    serves = ("global", "personal")

    alpha: NonNegativeFloat = 0.05
    """α: the learning rate of the step that adapts the common model to a hospital."""

    def program(self, view: FederationView) -> DeltaTraining:
        return MetaTraining(len(view.initial), self.alpha)

    def personalize(self, view: FederationView, state: State) -> LocalProblem:
        training = LocalTraining(epochs=1, learning_rate=self.alpha, batch_size=0, optimizer="sgd", keep=True)
        return LocalProblem(start=np.zeros(len(view.sizes), dtype=np.int64), training=training)
