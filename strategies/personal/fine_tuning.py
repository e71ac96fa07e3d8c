"""A global model by federated averaging, and then a fine-tuned model for every hospital.

CHiP-FL (Zhou), Table 2, has the baseline "Personalization (mu = 0.01)" but does not define it. It may mean FedProx
followed by fine-tuning (``mu: 0.01``), or federated averaging followed by fine-tuning with a proximal term
(``prox: 0.01``).

Traffic of a round: the server sends the P parameters of the global model to each participant. Each participant sends
back P numbers and its number of training rows. The P parameters that every hospital receives before fine-tuning are not
counted.

With boosted trees, each hospital grows trees on its own rows and adds them to the common trees.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from raysim.strategies.base import (
    FederationView,
    Ids,
    LocalProblem,
    NonNegativeFloat,
    Objective,
    Proximal,
    State,
    Strategy,
    Upload,
    shares,
)
from raysim.strategies.shared.personalization import Personalization, fine_tune
from raysim.strategies.shared.proximal import global_proximal
from raysim.strategies.trees.federated import FederatedTrees


@dataclass(frozen=True)
class PersonalTrees(FederatedTrees):
    """Common boosted trees, to which each hospital adds ``model.own_trees`` trees of its own after the last round.

    With ``training.stop``, a hospital with :func:`raysim.trees.boosting.enough` validation rows decides by the loss on
    these rows how many trees it adds.
    """

    title: ClassVar[str] = "Fine-tuning"
    serves = ("global", "personal")

    def personalize(self, view: FederationView, state: State) -> LocalProblem:
        return fine_tune(np.zeros(len(view.sizes), dtype=np.int64), Personalization())


@dataclass(frozen=True)
class FineTuning(Strategy):
    """Federated averaging or FedProx, and fine-tuning at every hospital after the last round."""

    title: ClassVar[str] = "Fine-tuning"
    serves = ("global", "personal")

    mu: NonNegativeFloat = 0.0
    """μ: the weight of the proximal term towards the global model during the rounds, as in FedProx."""
    prox: NonNegativeFloat = 0.0
    """The weight of the proximal term towards the global model during fine-tuning."""
    personalization: Personalization = field(default_factory=Personalization)
    """How each hospital fine-tunes the global model after the last round."""

    def with_trees(self) -> Strategy:
        for name in ("mu", "prox"):
            if getattr(self, name):
                raise ValueError(
                    f"{name}: {getattr(self, name):g} is the weight of a proximal term, which boosted trees do not "
                    f"have; leave {name} out"
                )
        return PersonalTrees()

    def unused_when_pooled(self) -> frozenset[str]:
        return super().unused_when_pooled() | {"mu"}

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return LocalProblem(
            start=np.zeros_like(ids),
            upload=Upload(shares(view.sizes[ids])),
            objective=Objective(proximal=(global_proximal(view, ids, self.mu, {}),)),
        )

    def personalize(self, view: FederationView, state: State) -> LocalProblem:
        everyone = np.zeros(len(view.sizes), dtype=np.int64)
        return fine_tune(everyone, self.personalization, (Proximal(self.prox, everyone),))
