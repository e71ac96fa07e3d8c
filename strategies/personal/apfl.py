"""APFL: each hospital mixes its own model with the global model, and learns the weight of the mixture.

Y. Deng, M. M. Kamani, M. Mahdavi: *Adaptive Personalized Federated Learning*, arXiv:2003.13461, 2020, Algorithm 1.

A hospital has the received global model ``w``, its own model ``v``, and the mixture ``m = alpha v + (1 - alpha) w``,
with which it predicts. On each batch it computes ``w -= rate grad(w)``, ``v -= rate alpha grad(m)`` and
``alpha -= rate grad(m) . (v - w)``. All three updates use the values from before the batch. ``alpha`` is clipped to [0,
1]. ``w`` is averaged as in federated averaging; ``v`` and ``alpha`` stay at the hospital. The library PFLlib differs:
it moves ``v`` by the gradient at ``v``, and replaces ``v`` by the mixture after each round.

Traffic of a round: the server sends the P parameters of the global model to each participant. Each participant sends
back P numbers and its number of training rows. Each batch needs two gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from raysim.strategies.base import OWN, Context, FederationView, Floats, Ids, Keep, Reply, State, UnitInterval
from raysim.strategies.shared.program_average import DeltaTraining, ProgramAverage


@dataclass(frozen=True)
class MixedTraining(DeltaTraining):
    """Local training of the received global model, the hospital's own model, and the weight of their mixture."""

    alpha: float
    adaptive: bool
    name: str = "apfl"

    @property
    def keeps(self) -> Mapping[str, Keep]:
        return {"own": Keep((self.size,)), "alpha": Keep(), "model": Keep((self.size,))}

    def run(self, at: Context) -> Reply:
        start, rate = at.received["theta"], at.model.learning_rate
        w: Floats = start.astype(np.float64)
        v, alpha = at.memory.get("own", w), float(at.memory.get("alpha", self.alpha))
        for batch in at.model.batches():
            mixed = at.model.gradient(alpha * v + (1 - alpha) * w, batch)
            slope = float(mixed @ (v - w)) if self.adaptive else 0.0
            w, v = w - rate * at.model.gradient(w, batch), v - rate * alpha * mixed
            alpha = min(1.0, max(0.0, alpha - rate * slope))
        memory = {"own": v, "alpha": alpha, "model": alpha * v + (1 - alpha) * w}
        return Reply({"delta": w - start}, memory)


@dataclass(frozen=True)
class Apfl(ProgramAverage):
    """Mixtures of global and own models with learned weights (APFL); global models are averaged as in FedAvg."""

    alpha: UnitInterval = 0.5
    """α: the initial weight of a hospital's own model in its mixture."""
    adaptive: bool = True
    """Whether each hospital learns its α."""

    def program(self, view: FederationView) -> DeltaTraining:
        return MixedTraining(len(view.initial), self.alpha, self.adaptive)

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        everyone = np.zeros(len(view.sizes), dtype=np.int64)
        return {"global": everyone, "personal": np.where(view.sizes > 0, OWN, 0)}
