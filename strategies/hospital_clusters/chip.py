"""CHiP-FL: clustering, hierarchical aggregation and personalization.

Zhou: *CHiP-FL*, equations 1 to 5 and appendix A. Hospitals are clustered once by their signatures (k-means). A
participant starts from its cluster's model and minimises ``L_i + lam |theta - theta_k|^2 + mu |theta - theta_g|^2``;
deltas are averaged in each cluster, cluster models (by rows) into the global one, and every cluster model is drawn
towards it by ``1 - alpha``. After the last round each hospital fine-tunes its cluster's model, without a regulariser.

Choices where the paper is silent: k-means on standardised columns; 5 clusters, as its hierarchical baseline; the cohort
is drawn over the federation and then split by cluster; deltas are against the cluster model (the pseudo-code, not
eq. 4); one epoch of fine-tuning.

Traffic: ``C + 3 D`` scalars up once (the signature); per participant 2 P down (P where mu = 0) and P + 1 up; before
fine-tuning P down per hospital, which no figure counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from raysim.strategies.base import OWN, FederationView, Ids, LocalProblem, State, Update, at_least, within
from raysim.strategies.hospital_clusters.by_signature import SignatureClustering
from raysim.strategies.shared.clustering import cluster_problem, members
from raysim.strategies.shared.personalization import Personalization, fine_tune


@dataclass(frozen=True, kw_only=True)
class Chip(SignatureClustering):
    """``lam``: λ and ``mu``: μ of eq. 1, ``alpha``: α of eq. 5, ``clusters``: K (``auto``: 5, or all hospitals).

    ``signature`` names the blocks that hospitals are clustered by; ``block_scale`` gives each the same weight.
    ``recluster_every``: r, after how many rounds they are clustered again
    (:mod:`raysim.strategies.shared.reclustering`); 0, as in the paper, is never.
    """

    title: ClassVar[str] = "CHiP-FL"

    lam: float = 0.5
    """λ: how strongly a hospital is pulled to its cluster's model while it trains (equation 1)."""
    mu: float = 0.05
    """μ: how strongly it is pulled to the global model (equation 1)."""
    alpha: float = 0.9
    """α: how much of itself a cluster's model keeps in a round; the rest comes from the global model (equation 5)."""
    personalization: Personalization = field(default_factory=Personalization)
    """How each hospital fine-tunes its cluster's model after the last round."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("lam", self.lam, 0)
        at_least("mu", self.mu, 0)
        within("alpha", self.alpha, 0, 1)

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return cluster_problem(view, state, ids, self.lam, self.mu)

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        return self.aggregated(view, state, update, self.alpha)

    def personalize(self, view: FederationView, state: State) -> LocalProblem:
        return fine_tune(members(state), self.personalization)

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        everyone = np.zeros(len(view.sizes), dtype=np.int64)
        return {"global": everyone, "cluster": members(state), "personal": np.full_like(everyone, OWN)}
