"""Steps of a server that treats the averaged delta of a round as if it were a descent direction.

S. J. Reddi, Z. Charles, M. Zaheer, Z. Garrett, K. Rush, J. Konečný, S. Kumar, H. B. McMahan: *Adaptive Federated
Optimization*, ICLR 2021, Algorithm 2. ``D [P]`` is the weighted average of the cohort's deltas, taken where
federated averaging would add it to the global model. The engine aggregates only rounds in which somebody trained, so
that a round without participants leaves every accumulator as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from raysim.strategies.base import (
    FederationView,
    Floats,
    Ids,
    LocalProblem,
    State,
    Update,
    Upload,
    at_least,
    one_of,
    own_state,
)
from raysim.strategies.shared.weights import Weighting, check_weighting, hospital_weights

InitialAccumulator = Literal["zero", "tau2"]
"""Where ``v`` starts: at 0 as Flower and FedLab do, or at ``tau^2``, the least that the paper allows."""


@dataclass(frozen=True, eq=False, kw_only=True)
class AdaptiveState(State):
    """``m [P]`` and ``v [P]``, the averages of ``D`` and of its squares; ``steps``, how many rounds went into them."""

    m: Floats
    v: Floats
    steps: int = 0


def averaging_problem(view: FederationView, ids: Ids, weights: Weighting, minimum_weight: float) -> LocalProblem:
    """Every participant starts from the global model; the deltas are averaged as federated averaging would."""
    weight = hospital_weights(view.sizes[ids], weights, minimum_weight)
    return LocalProblem(start=np.zeros_like(ids), upload=Upload(weight))


def check_adaptive(
    server_learning_rate: float, tau: float, initial_accumulator: str, weights: str, minimum_weight: float
) -> None:
    """Raise ``ValueError`` naming the first hyper-parameter that cannot be used."""
    at_least("server_learning_rate", server_learning_rate, 0)
    at_least("tau", tau, 0)
    one_of("initial_accumulator", initial_accumulator, ("zero", "tau2"))
    check_weighting(weights, minimum_weight)


def check_decay(field: str, value: float) -> None:
    """Raise ``ValueError`` naming ``field`` unless ``0 <= value < 1``."""
    if not 0 <= value < 1:
        raise ValueError(f"{field}: {value} is not in [0, 1)")


def adaptive_state(view: FederationView, tau: float, initial_accumulator: InitialAccumulator) -> AdaptiveState:
    """The common initial model, ``m = 0`` and ``v = v0``."""
    zero = np.zeros_like(view.initial)
    return AdaptiveState(
        bank=view.initial[None, :].copy(),
        m=zero,
        v=zero if initial_accumulator == "zero" else np.full_like(zero, tau**2),
    )


def adaptive_step(
    state: State,
    update: Update,
    *,
    rate: float | Callable[[int], float],
    beta_1: float,
    tau: float,
    accumulate: Callable[[Floats, Floats], Floats],
) -> AdaptiveState:
    """``m <- beta_1 m + (1 - beta_1) D``, ``v <- accumulate(v, D^2)``, ``theta <- theta + rate m / (sqrt(v) + tau)``.

    ``rate`` may depend on the number of the step, 1, 2, ... A coordinate without any scale (``v = tau = 0``) stays.
    """
    state, delta = own_state(state, AdaptiveState), update.sums[0]
    m = beta_1 * state.m + (1.0 - beta_1) * delta
    v = accumulate(state.v, delta**2)
    steps = state.steps + 1
    scale = np.sqrt(v) + tau
    step = (rate(steps) if callable(rate) else rate) * np.divide(m, scale, out=np.zeros_like(m), where=scale > 0)
    return AdaptiveState(bank=state.bank + step, cluster=state.cluster, m=m, v=v, steps=steps)
