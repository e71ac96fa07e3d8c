"""CHiP-FL: clustering, hierarchical aggregation and personalization.

Zhou: *CHiP-FL*, equations 1 to 5 and appendix A. Hospitals are clustered once by their signatures (k-means). A
participant starts from its cluster's model and minimises ``L_i + lam |theta - theta_k|^2 + mu |theta - theta_g|^2``;
deltas are averaged in each cluster, cluster models (by rows) into the global one, and every cluster model is drawn
towards it by ``1 - alpha``. After the last round each hospital fine-tunes its cluster's model, without a regulariser.

Choices where the paper is silent: k-means on standardised columns; 5 clusters, as its hierarchical baseline; the cohort
is drawn over the federation and then split by cluster; deltas are against the cluster model (the pseudo-code, not
eq. 4); one epoch of fine-tuning.

Traffic: ``C + 3 D`` scalars up once (the signature); per participant 2 P down (P where mu = 0) and P + 1 up; before
fine-tuning P down per hospital.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from raysim.strategies.base import OWN, FederationView, Ids, LocalProblem, State, Strategy, Update, at_least, within
from raysim.strategies.shared.clustering import (
    check_clusters,
    check_enough_hospitals,
    cluster_problem,
    cluster_steps,
    clustered_state,
    members,
)
from raysim.strategies.shared.personalization import Personalization, fine_tune
from raysim.strategies.shared.reclustering import reclustered
from raysim.strategies.shared.signatures import BLOCKS, Block


@dataclass(frozen=True)
class Chip(Strategy):
    """``lam``: λ and ``mu``: μ of eq. 1, ``alpha``: α of eq. 5, ``clusters``: K.

    ``signature`` names the blocks that hospitals are clustered by; ``block_scale`` gives each the same weight.
    ``recluster_every``: r, after how many rounds they are clustered anew
    (:mod:`raysim.strategies.shared.reclustering`); 0, as in the paper, is never.
    """

    clusters: int = 5
    lam: float = 0.5
    mu: float = 0.05
    alpha: float = 0.9
    personalization: Personalization = field(default_factory=Personalization)
    signature: tuple[Block, ...] = BLOCKS
    block_scale: bool = False
    recluster_every: int = 0

    def __post_init__(self) -> None:
        check_clusters(self.clusters, self.signature, self.recluster_every)
        at_least("lam", self.lam, 0)
        at_least("mu", self.mu, 0)
        within("alpha", self.alpha, 0, 1)

    def check(self, names: Sequence[str], sizes: Ids) -> None:
        check_enough_hospitals(self.clusters, sizes)

    def setup(self, view: FederationView) -> State:
        return clustered_state(view, self.clusters, self.signature, self.block_scale, self.recluster_every)

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return cluster_problem(view, state, ids, self.lam, self.mu)

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        state = cluster_steps(view, state, update, self.alpha)
        return reclustered(view, state, self.clusters, self.block_scale, self.recluster_every)

    def personalize(self, view: FederationView, state: State) -> LocalProblem:
        return fine_tune(members(state), self.personalization)

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        everyone = np.zeros(len(view.sizes), dtype=np.int64)
        return {"global": everyone, "cluster": members(state), "personal": np.full_like(everyone, OWN)}
