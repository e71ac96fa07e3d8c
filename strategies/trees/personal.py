"""Trees from sums, followed by a few trees that each hospital adds on its own rows: fine-tuning for trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from raysim.strategies.base import OWN, FederationView, Ids, LocalProblem, State
from raysim.strategies.shared.personalization import Personalization, fine_tune
from raysim.strategies.trees.federated import FederatedTrees


@dataclass(frozen=True)
class PersonalTrees(FederatedTrees):
    """Trees from sums. After the last round each hospital adds ``model.own_trees`` to the federated trees."""

    title: ClassVar[str] = "Fine-tuning"

    def personalize(self, view: FederationView, state: State) -> LocalProblem:
        return fine_tune(np.zeros(len(view.sizes), dtype=np.int64), Personalization())

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        everyone = np.zeros(len(view.sizes), dtype=np.int64)
        return {"global": everyone, "personal": np.full_like(everyone, OWN)}
