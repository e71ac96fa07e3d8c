"""FedNova: updates are divided by each hospital's number of steps, so that hospitals with more steps do not dominate.

J. Wang, Q. Liu, H. Liang, G. Joshi, H. V. Poor: *Tackling the Objective Inconsistency Problem in Heterogeneous
Federated Optimization*, NeurIPS 2020, Algorithm 1 and section 4.

Participant i takes ``tau_i`` steps and sends ``delta_i / a_i`` and ``a_i``, where ``delta_i`` is the change of its
parameters. With the hospitals' weights ``w_i``, the model moves by ``(sum w_i a_i) * sum w_i delta_i / a_i``. ``a_i``
is the sum of the weights that the steps have in the update: ``tau_i`` for plain steps;
``(tau_i - rho (1 - rho^tau_i) / (1 - rho)) / (1 - rho)`` with momentum ρ; and ``(1 - (1 - eta mu)^tau_i) / (eta mu)``
with learning rate η and a proximal term of weight μ. If all hospitals take equally many steps, this is federated
averaging.

Traffic in a round: the server sends the model's P scalars to each participant, which sends back P scalars, ``a_i`` and
the number of its training rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

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
    Training,
    Update,
    Upload,
)
from raysim.strategies.shared.weights import Weighted


@dataclass(frozen=True)
class NormalisedTraining(Program):
    """Local training after which a hospital divides its update by the sum of the weights of its steps."""

    size: int
    mu: float
    momentum: float
    name: str = "fednova"

    @property
    def sends(self) -> Mapping[str, Send]:
        return {"delta": Send((self.size,)), "steps": Send()}

    def run(self, at: Context) -> Reply:
        start = at.received["theta"]
        theta, taken = at.model.train(start, proximal=[(self.mu, start)])
        steps = self._weight(taken, at.model.learning_rate * self.mu)
        return Reply({"delta": (theta - start) / steps if steps else theta - start, "steps": steps})

    def _weight(self, taken: int, shrink: float) -> float:
        """Return the sum of the weights that ``taken`` local steps have in a hospital's update.

        With a proximal term, the weight of a step is multiplied by ``1 - shrink`` for each later step.
        """
        if self.momentum:
            rest = 1 - self.momentum
            return (taken - self.momentum * (1 - self.momentum**taken) / rest) / rest
        return (1 - (1 - shrink) ** taken) / shrink if shrink else float(taken)


@dataclass(frozen=True)
class FedNova(Weighted):
    """Federated averaging of normalised updates (FedNova); ``mu`` adds a proximal term as in FedProx."""

    needs = Needs.more("sends numbers of steps, which clipping of updates does not bound")

    mu: NonNegativeFloat = 0.0
    """μ: the weight of the proximal term towards the received model."""

    def check_training(self, training: Training) -> None:
        if training.optimizer == "adam":
            raise ValueError("training.optimizer: fednova supports sgd and momentum, not adam; use one of the two")
        if training.optimizer == "momentum" and self.mu:
            raise ValueError(
                "training.optimizer: fednova defines no weights for momentum steps with a proximal term "
                "(mu); use sgd, or mu: 0"
            )

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        program = NormalisedTraining(len(view.initial), self.mu, view.momentum)
        return LocalProblem(np.zeros_like(ids), Upload(self.weigh(view.sizes[ids])), program=program)

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        return replace(state, models=state.models + float(update.extra("steps")) * update.sums)
