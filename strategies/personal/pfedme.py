"""pFedMe: hospitals' own models stay near the global model by a proximal term, and the global model moves towards them.

C. T. Dinh, N. H. Tran, T. D. Nguyen: *Personalized Federated Learning with Moreau Envelopes*, NeurIPS 2020, Algorithm
1.

A participant receives the global model ``w`` and trains a copy of it, ``w_i``. For each batch it takes ``steps`` steps
``theta -= rate (grad(theta) + lam (theta - w_i))``, starting at ``theta = w_i``. Then it moves ``w_i`` towards
``theta``, by the fraction ``approach`` (eta times lam) of their difference. The server adds ``beta`` times the mean of
``w_i - w`` to ``w``. The last ``theta`` is the hospital's own model and stays there.

The paper uses ``lam`` 15, with far smaller learning rates than are usual here. The library PFLlib adds 0.001 theta to
the gradient, and starts each batch from the theta of the batch before.

Traffic of a round: the server sends the P parameters of the global model to each participant. Each participant sends
back P numbers and its number of training rows. Each batch needs ``steps`` gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from raysim.strategies.base import (
    OWN,
    Context,
    FederationView,
    Floats,
    Ids,
    Keep,
    LocalProblem,
    NonNegativeFloat,
    PositiveInt,
    Reply,
    ShareOfOne,
    State,
    Strategy,
    Training,
    Update,
)
from raysim.strategies.shared.program_average import OF_HOSPITALS, DeltaTraining, alike, check_plain


@dataclass(frozen=True)
class EnvelopeTraining(DeltaTraining):
    """Local training of a hospital's own model, with a proximal term towards a copy of the global model."""

    lam: float
    steps: int
    approach: float
    name: str = "pfedme"

    @property
    def keeps(self) -> Mapping[str, Keep]:
        return {"model": Keep((self.size,))}

    def run(self, at: Context) -> Reply:
        w: Floats = at.received["theta"].astype(np.float64)
        theta, rate = w, at.model.learning_rate
        if rate * self.lam >= 2:
            raise ValueError(
                f"training.learning_rate: {rate:g} times lam {self.lam:g} is 2 or more, so steps diverge; lower one "
                "of them"
            )
        for batch in at.model.batches():
            theta = w
            for _ in range(self.steps):
                theta = theta - rate * (at.model.gradient(theta, batch) + self.lam * (theta - w))
            w = w - self.approach * (w - theta)
        return Reply({"delta": w - at.received["theta"]}, {"model": theta})


@dataclass(frozen=True)
class PFedMe(Strategy):
    """Own models near the global model by Moreau envelopes (pFedMe). All participants have equal weights."""

    needs = OF_HOSPITALS

    lam: NonNegativeFloat = 0.5
    """λ: the weight of the proximal term between a hospital's own model and its copy of the global model."""
    steps: PositiveInt = 5
    """K: the number of steps of the own model on each batch."""
    approach: ShareOfOne = 0.3
    """η λ: after each batch, the hospital's copy of the global model moves this share of the way to the own model."""
    beta: NonNegativeFloat = 1.0
    """β: the factor by which the server multiplies the mean of the hospitals' changes."""

    def check_training(self, training: Training) -> None:
        check_plain(training, "pfedme")

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return alike(ids, EnvelopeTraining(len(view.initial), self.lam, self.steps, self.approach))

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        return replace(state, models=state.models + self.beta * update.sums)

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        everyone = np.zeros(len(view.sizes), dtype=np.int64)
        return {"global": everyone, "personal": np.where(view.sizes > 0, OWN, 0)}
