"""FedSAM: federated averaging with local training that seeks flat minima.

Z. Qu, X. Li, R. Duan, Y. Liu, B. Tang, Z. Lu: *Generalized Federated Learning via Sharpness Aware Minimization*, ICML
2022, Algorithm 1.

A step computes the gradient ``g`` of a batch at the parameters ``w``. It then descends from ``w`` by the gradient of
the same batch at ``w + rho g / |g|``. With ``rho: 0`` this is federated averaging.

Traffic in a round: the server sends the model's P scalars to each participant, which sends back P scalars and the
number of its training rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raysim.strategies.base import Context, FederationView, Floats, NonNegativeFloat, Reply
from raysim.strategies.shared.program_average import DeltaTraining, ProgramAverage


@dataclass(frozen=True)
class SharpnessAware(DeltaTraining):
    """Local training in which each step uses the gradient at a point that is ``rho`` away, uphill."""

    rho: float
    name: str = "fedsam"

    def run(self, at: Context) -> Reply:
        start = at.received["theta"]
        w: Floats = start.astype(np.float64)
        for batch in at.model.batches():
            uphill = at.model.gradient(w, batch) if self.rho else np.zeros_like(w)
            length = float(np.linalg.norm(uphill))
            ahead = w + self.rho / length * uphill if length else w
            w = w - at.model.learning_rate * at.model.gradient(ahead, batch)
        return Reply({"delta": w - start})


@dataclass(frozen=True)
class FedSam(ProgramAverage):
    """Federated averaging by sharpness-aware minimisation (FedSAM); hospitals are weighted as in FedAvg."""

    rho: NonNegativeFloat = 0.05
    """ρ: the length of the step uphill, after which the gradient is computed."""

    def program(self, view: FederationView) -> DeltaTraining:
        return SharpnessAware(len(view.initial), self.rho)
