"""q-FedAvg: hospitals with larger losses move the model further.

T. Li, M. Sanjabi, A. Beirami, V. Smith: *Fair Resource Allocation in Federated Learning*, ICLR 2020, Algorithm 2.

``F_i`` is hospital i's mean loss on all its training rows before training, plus 1e-10. ``delta_i`` is the change of the
hospital's parameters in training, and L is 1 / learning rate. With ``d_i = -L delta_i`` and
``h_i = q F_i^(q - 1) |d_i|^2 + L F_i^q``, the server's step is ``theta <- theta - sum F_i^q d_i / sum h_i`` over the
cohort. q = 0 is uniform federated averaging. L estimates the gradient's Lipschitz constant. The estimate is meaningful
only with plain SGD, but other optimisers are allowed.

If the server may learn only sums, each hospital sends ``F_i^q delta_i`` and ``h_i / L``, whose sums give the same step.

Deviation: the configured selection samples the cohort. The paper samples hospitals with probabilities in proportion to
rows, and the authors' code samples them uniformly.

Traffic in a round: the server sends the model's P scalars to each participant, which sends back its update of P
scalars, its loss, and the number of its training rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from raysim.strategies.base import (
    Context,
    FederationView,
    Ids,
    LocalProblem,
    Needs,
    NonNegativeFloat,
    Program,
    Reply,
    Send,
    State,
    Strategy,
    Update,
    Upload,
)


@dataclass(frozen=True)
class SteepenedTraining(Program):
    """Local training after which a hospital sends its delta times ``F^q``, and the number
    ``F^q + q F^(q - 1) |delta|^2 / learning_rate``.

    ``delta`` is the change of the parameters in training, and ``F`` the mean loss before training, plus 1e-10.
    """

    size: int
    q: float
    name: str = "qfedavg"

    @property
    def sends(self) -> Mapping[str, Send]:
        return {"delta": Send((self.size,)), "steepness": Send()}

    def run(self, at: Context) -> Reply:
        theta = at.received["theta"]
        delta, loss = at.model.train(theta).theta - theta, at.model.loss(theta) + 1e-10
        weight = loss**self.q
        steepness = weight + self.q * loss ** (self.q - 1.0) * float(delta @ delta) / at.model.learning_rate
        return Reply({"delta": weight * delta, "steepness": steepness})


@dataclass(frozen=True)
class QFedAvg(Strategy):
    """Federated averaging with more weight on larger losses (q-FedAvg)."""

    title: ClassVar[str] = "q-FedAvg"
    needs: ClassVar[Needs] = Needs.of_hospitals("weights hospitals by their losses")

    q: NonNegativeFloat = 1.0
    """q: how strongly larger losses count; 0 means equal weights, and the paper uses up to 5."""

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        if not view.hides:
            return LocalProblem(start=np.zeros_like(ids), upload=Upload(single=True, losses=True))
        alike = Upload(np.full(len(ids), 1.0 / max(len(ids), 1)))
        return LocalProblem(np.zeros_like(ids), alike, program=SteepenedTraining(len(view.initial), self.q))

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        if update.numbers is not None:
            steepness = float(update.extra("steepness"))
            return replace(state, models=state.models + update.sums / steepness) if steepness > 0 else state
        if update.deltas is None or update.losses is None:
            raise TypeError(
                "update: has no deltas or no losses of single hospitals; pass an update that answers this strategy's "
                "problem"
            )
        lipschitz, losses = 1.0 / view.learning_rate, update.losses + 1e-10
        weight = losses**self.q
        squares = (lipschitz * update.deltas) ** 2
        steepness = self.q * losses ** (self.q - 1.0) * squares.sum(axis=1) + lipschitz * weight
        return replace(state, models=state.models + lipschitz * (weight @ update.deltas) / steepness.sum())
