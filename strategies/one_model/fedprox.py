"""FedProx: federated averaging with a proximal term.

T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith: *Federated Optimization in Heterogeneous Networks*,
MLSys 2020, Algorithm 2.

Each participant minimises ``L_i(theta) + mu/2 * |theta - theta_global|^2``. A straggler (a slow hospital) may train for
fewer epochs.

Deviations from Algorithm 2: the paper's server samples K hospitals with probabilities ``n_i / n`` and averages their
models with equal weights. To do the same, set ``selection: by_rows`` and ``weights: uniform``. The configured epochs,
or ``straggler_epochs``, replace the paper's gamma-inexact solutions.

Traffic as in federated averaging: each participant receives the model's P scalars, and sends back P scalars and the
number of its training rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from raysim.strategies.base import (
    FederationView,
    Ids,
    LocalProblem,
    LocalTraining,
    NonNegativeFloat,
    NonNegativeInt,
    Objective,
    State,
    Upload,
)
from raysim.strategies.shared.proximal import global_proximal
from raysim.strategies.shared.weights import Weighted


@dataclass(frozen=True)
class FedProx(Weighted):
    """Federated averaging with a proximal term (FedProx); the fields are its settings."""

    mu: NonNegativeFloat = 0.01
    """μ: the weight of the proximal term towards the received model."""
    mu_by_hospital: Mapping[str, NonNegativeFloat] = field(default_factory=dict)
    """Other values of μ for some hospitals, by name."""
    straggler_epochs: Mapping[str, NonNegativeInt] = field(default_factory=dict)
    """Other numbers of epochs for some hospitals (stragglers), by name."""

    def check(self, names: Sequence[str], sizes: Ids) -> None:
        for key in ("mu_by_hospital", "straggler_epochs"):
            for name in getattr(self, key):
                if name not in names:
                    raise ValueError(
                        f"{key}: no hospital is called '{name}'; use hospitals' names, such as '{names[0]}'"
                    )

    def unused_when_pooled(self) -> frozenset[str]:
        return super().unused_when_pooled() | {"mu", "mu_by_hospital", "straggler_epochs"}

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return LocalProblem(
            start=np.zeros_like(ids),
            upload=Upload(self.weigh(view.sizes[ids])),
            objective=Objective(proximal=(global_proximal(view, ids, self.mu, self.mu_by_hospital),)),
            training=LocalTraining(epochs=self._epochs(view, ids)),
        )

    def _epochs(self, view: FederationView, ids: Ids) -> Ids | None:
        if not self.straggler_epochs:
            return None
        return np.array([self.straggler_epochs.get(view.names[i], view.local_epochs) for i in ids])
