"""FedAdagrad, FedYogi and FedAdam: the server treats the averaged delta of a round as a gradient, with adaptive steps.

S. J. Reddi, Z. Charles, M. Zaheer, Z. Garrett, K. Rush, J. Konečný, S. Kumar, H. B. McMahan: *Adaptive Federated
Optimization*, ICLR 2021, Algorithm 2.

With ``D`` the averaged delta of a round (the change of the participants' parameters),
``m <- beta_1 m + (1 - beta_1) D`` and ``theta <- theta + server_learning_rate m / (sqrt(v) + tau)``, where v
accumulates squares:

- FedAdagrad: ``v <- v + D^2``; β_1 is 0 unless set.
- FedYogi: ``v <- v - (1 - beta_2) D^2 sign(v - D^2)``.
- FedAdam: ``v <- beta_2 v + (1 - beta_2) D^2``. ``bias_correction: flower`` multiplies the rate by
  ``sqrt(1 - beta_2^(r+1)) / (1 - beta_1^(r+1))`` as Flower 1.13 does, with r the number of the aggregation (1, 2, ...);
  the paper has no such factor.

Deviations: ``v`` starts at 0, as in Flower and FedLab; the paper requires at least ``tau^2``
(``initial_accumulator: tau2``). Deltas are weighted by rows, as in Flower; the paper weights them equally
(``weights: uniform``). ``training.learning_rate`` is the paper's client rate η_l. The authors of Clust-PSI-PFL
(arXiv:2512.20363) found the defaults best in a grid search.

Traffic as in federated averaging: each participant receives the model's P scalars, and sends back P scalars and the
number of its training rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from raysim.strategies.base import BelowOne, FederationView, Floats, NonNegativeFloat, State, Update, own_state
from raysim.strategies.shared.weights import Weighted

InitialAccumulator = Literal["zero", "tau2"]
"""The initial value of the accumulated squares v: ``zero``, or ``tau2`` (``tau^2``)."""


@dataclass(frozen=True, eq=False, kw_only=True)
class AdaptiveState(State):
    """The state of FedAdagrad, FedYogi or FedAdam between rounds. D is the averaged update (delta) of a round."""

    m: Floats
    """The exponential moving average of ``D`` over rounds, ``[P]``."""
    v: Floats
    """The accumulated squares of ``D`` over rounds, ``[P]``."""
    steps: int = 0
    """The number of aggregations so far."""


@dataclass(frozen=True)
class AdaptiveServer(Weighted):
    """The common part of FedAdagrad, FedYogi and FedAdam."""

    server_learning_rate: NonNegativeFloat = 0.001
    """η: step size of the server."""
    beta_1: BelowOne = 0.9
    """β1: decay of the average of updates."""
    tau: NonNegativeFloat = 0.001
    """τ: a constant added to ``sqrt(v)``, so that small squares do not cause large steps."""
    initial_accumulator: InitialAccumulator = "zero"
    """The initial value of v: ``zero``, or ``tau2`` (τ squared)."""

    def setup(self, view: FederationView) -> AdaptiveState:
        zero = np.zeros_like(view.initial)
        v = zero if self.initial_accumulator == "zero" else np.full_like(zero, self.tau**2)
        return AdaptiveState(models=view.initial[None, :].copy(), m=zero, v=v)

    def aggregate(self, view: FederationView, state: State, update: Update) -> AdaptiveState:
        state, delta = own_state(state, AdaptiveState), update.sums[0]
        m = self.beta_1 * state.m + (1.0 - self.beta_1) * delta
        v = self.accumulated(state.v, delta**2)
        steps = state.steps + 1
        scale = np.sqrt(v) + self.tau
        # A coordinate without a scale (v = tau = 0) does not change.
        step = self.rate(steps) * np.divide(m, scale, out=np.zeros_like(m), where=scale > 0)
        return AdaptiveState(models=state.models + step, m=m, v=v, steps=steps)

    def accumulated(self, v: Floats, squares: Floats) -> Floats:
        """Return the new accumulated squares ``[P]``, from the old ones ``v [P]`` and a delta's ``squares [P]``."""
        raise NotImplementedError

    def rate(self, step: int) -> float:
        """Return the server's learning rate in aggregation number ``step`` (1, 2, ...)."""
        return self.server_learning_rate


@dataclass(frozen=True)
class FedAdagrad(AdaptiveServer):
    """FedAdagrad: an adaptive server whose step size shrinks as the sum of the squared deltas of all rounds grows."""

    server_learning_rate: NonNegativeFloat = 0.3162
    beta_1: BelowOne = 0.0
    tau: NonNegativeFloat = 0.1

    def accumulated(self, v: Floats, squares: Floats) -> Floats:
        return v + squares


@dataclass(frozen=True)
class FedYogi(AdaptiveServer):
    """FedYogi: an adaptive server that changes each accumulated square by at most the square of the new delta."""

    beta_2: BelowOne = 0.99
    """β2: decay of the accumulated squares."""
    tau: NonNegativeFloat = 0.01

    def accumulated(self, v: Floats, squares: Floats) -> Floats:
        return v - (1.0 - self.beta_2) * squares * np.sign(v - squares)


@dataclass(frozen=True)
class FedAdam(AdaptiveServer):
    """FedAdam: an adaptive server with exponential averages of deltas and of their squares."""

    beta_2: BelowOne = 0.99
    """β2: decay of the average of squares."""
    bias_correction: Literal["none", "flower"] = "none"
    """Whether averages are corrected for their initial value of zero: ``flower`` corrects them as Flower does."""

    def accumulated(self, v: Floats, squares: Floats) -> Floats:
        return self.beta_2 * v + (1.0 - self.beta_2) * squares

    def rate(self, step: int) -> float:
        if self.bias_correction == "none":
            return self.server_learning_rate
        corrected: float = (1.0 - self.beta_2 ** (step + 1)) ** 0.5 / (1.0 - self.beta_1 ** (step + 1))
        return self.server_learning_rate * corrected
