"""Strategies that cluster hospitals by signatures, once or every few rounds: the common part of CHiP-FL and its
baselines.

CHiP-FL (Zhou), section 4 and appendix A. Traffic: ``C + 3 D`` scalars up once (the signature), and the traffic of
:mod:`raysim.strategies.shared.reclustering` when clusters change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from raysim.strategies.base import (
    CLUSTERS,
    FederationView,
    Ids,
    LocalProblem,
    Needs,
    State,
    Strategy,
    Update,
    at_least,
    one_of,
)
from raysim.strategies.shared.clustering import (
    Clusters,
    capped,
    check_clusters,
    check_enough_hospitals,
    cluster_problem,
    cluster_steps,
    clustered_state,
    number_of,
)
from raysim.strategies.shared.reclustering import reclustered
from raysim.strategies.shared.signatures import BLOCKS, Block
from raysim.strategies.trees.by_cluster import ClusterTrees


@dataclass(frozen=True, kw_only=True)
class SignatureClustering(Strategy):
    """A strategy with one model for each cluster of hospitals, formed from signatures."""

    needs: ClassVar[Needs] = CLUSTERS

    clusters: Clusters = "auto"
    """K, the number of clusters; ``auto`` is 5, or the number of hospitals if it is smaller."""
    signature: tuple[Block, ...] = BLOCKS
    """The parts of the signature that hospitals send and are clustered by."""
    block_scale: bool = False
    """Whether each part of the signature has the same weight, however many numbers it has."""
    recluster_every: int = 0
    """r: the number of rounds after which hospitals are clustered again; 0 means never."""

    def __post_init__(self) -> None:
        check_clusters(self.clusters)
        at_least("recluster_every", self.recluster_every, 0)
        for block in self.signature:
            one_of("signature", block, BLOCKS)
        if not self.signature:
            raise ValueError(f"signature: empty; name some of {', '.join(BLOCKS)}")

    def check(self, names: Sequence[str], sizes: Ids) -> None:
        check_enough_hospitals(number_of(self.clusters, sizes), sizes)

    def remark(self, sizes: Ids) -> str:
        return capped(self.clusters, sizes)

    def with_trees(self) -> Strategy:
        return ClusterTrees(self)

    def setup(self, view: FederationView) -> State:
        clusters = number_of(self.clusters, view.sizes)
        return clustered_state(view, clusters, self.signature, self.block_scale, self.recluster_every)

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return cluster_problem(view, state, ids)

    def aggregated(self, view: FederationView, state: State, update: Update, alpha: float) -> State:
        """Return the state after both levels of aggregation; clusters move to the global model by ``1 - alpha``."""
        state = cluster_steps(view, state, update, alpha)
        clusters = number_of(self.clusters, view.sizes)
        return reclustered(view, state, clusters, self.block_scale, self.recluster_every)
