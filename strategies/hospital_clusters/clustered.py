"""Federated averaging inside each cluster, without a global model.

The baseline "Clustered (No global)" of CHiP-FL (Zhou), Table 2, which the paper leaves undefined; taken as CHiP-FL with
lam = mu = 0 and alpha = 1: independent federated averaging in each cluster. Each hospital uses its cluster's model.

Traffic: the signature once; per participant P scalars down, P + 1 up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raysim.strategies.base import FederationView, Ids, LocalProblem, State, Strategy, Update
from raysim.strategies.shared.clustering import (
    check_clusters,
    check_enough_hospitals,
    cluster_problem,
    cluster_steps,
    clustered_state,
    members,
)
from raysim.strategies.shared.reclustering import reclustered
from raysim.strategies.shared.signatures import BLOCKS, Block


@dataclass(frozen=True)
class Clustered(Strategy):
    """``clusters``: K; ``signature`` and ``block_scale`` say what hospitals are clustered by.

    ``recluster_every``: r, after how many rounds they are clustered anew
    (:mod:`raysim.strategies.shared.reclustering`); 0 is never.
    """

    clusters: int = 5
    signature: tuple[Block, ...] = BLOCKS
    block_scale: bool = False
    recluster_every: int = 0

    def __post_init__(self) -> None:
        check_clusters(self.clusters, self.signature, self.recluster_every)

    def check(self, names: Sequence[str], sizes: Ids) -> None:
        check_enough_hospitals(self.clusters, sizes)

    def setup(self, view: FederationView) -> State:
        return clustered_state(view, self.clusters, self.signature, self.block_scale, self.recluster_every)

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return cluster_problem(view, state, ids, lam=0.0, mu=0.0)

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        state = cluster_steps(view, state, update, alpha=1.0)
        return reclustered(view, state, self.clusters, self.block_scale, self.recluster_every)

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        return {"cluster": members(state)}
