"""The common part of CHiP-FL and its baselines, which cluster hospitals by signatures once or every few rounds.

The clustering follows Zhou: *CHiP-FL*, section 4 and appendix A. A signature has a hospital's number of rows, and
statistics of its labels and features. Traffic: each hospital sends its signature once: ``C + 3 D`` scalars for C
classes and D columns, or ``3 + 3 D`` for a numeric label.

CHiP-FL forms clusters once, before the first round. As an extension, clusters may change every r rounds. K-means then
runs on the signatures and, as further columns, the hospitals' mean training losses under all K cluster models. A new
cluster's model is the mean of its members' previous cluster models, weighted by training rows. The weighted mean of all
cluster models therefore does not change.

Traffic of this extension: every r rounds, each hospital with training rows receives K models of P scalars and sends K
losses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from raysim.strategies.base import (
    CLUSTERS,
    FederationView,
    Ids,
    LocalProblem,
    MeanLoss,
    Needs,
    Newcomers,
    NonNegativeInt,
    State,
    Strategy,
    Update,
    mean_losses,
    own_state,
)
from raysim.strategies.shared.clustering import (
    Clusters,
    ReclusteringState,
    capped,
    check_enough_hospitals,
    cluster_problem,
    cluster_rows,
    cluster_steps,
    clustered_state,
    kmeans,
    members,
    number_of,
    with_enough,
)
from raysim.strategies.shared.signatures import (
    BLOCKS,
    Block,
    NearestSignature,
    Signature,
    fill_with_column_means,
    signatures,
    standardise,
)
from raysim.strategies.trees.by_cluster import ClusterTrees


@dataclass(frozen=True, kw_only=True)
class SignatureClustering(Strategy):
    """A strategy with one model for each cluster of hospitals with similar labels and features (signatures)."""

    needs: ClassVar[Needs] = CLUSTERS

    clusters: Clusters = "auto"
    """K, the number of clusters; ``auto`` is 5, or the number of hospitals with training rows if this is smaller."""
    signature: tuple[Block, ...] = BLOCKS
    """The parts of the signature that are used to cluster hospitals."""
    block_scale: bool = False
    """Whether each part of the signature has the same weight, however many numbers it has."""
    recluster_every: NonNegativeInt = 0
    """r: the number of rounds after which hospitals are clustered again; 0 means never."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.signature:
            raise ValueError(f"signature: is empty; name some of {', '.join(BLOCKS)}")

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

    def asks(self, rounds: int) -> Mapping[str, int]:
        return {MeanLoss.name: rounds // self.recluster_every} if self.recluster_every else {}

    def newcomers(self, view: FederationView, state: State) -> Newcomers | None:
        if self.recluster_every or view.noisy(Signature.name):
            return None
        ids = view.trainable
        of = signatures(view, self.signature)[ids]
        return NearestSignature(of, members(state)[ids], view.classes, self.signature, self.block_scale)

    def aggregated(self, view: FederationView, state: State, update: Update, alpha: float) -> State:
        """Return the state after a round.

        Updates are averaged in each cluster. Each cluster model then moves by ``1 - alpha`` of the way to the global
        model, the average of cluster models. Every ``recluster_every`` rounds hospitals are clustered again.
        """
        state = cluster_steps(view, state, update, alpha)
        clusters = number_of(self.clusters, view.sizes)
        return reclustered(view, state, clusters, self.block_scale, self.recluster_every)


def reclustered(view: FederationView, state: State, clusters: int, block_scale: bool, every: int) -> State:
    """Return the state, with hospitals clustered again if the round is a multiple of ``every`` (0: never)."""
    if not every:
        return state
    state = own_state(state, ReclusteringState)
    state = replace(state, rounds=state.rounds + 1)
    if state.rounds % every:
        return state
    ids, previous = view.trainable, members(state) - 1
    # A hospital whose number of rows is hidden may have none, and thus no losses.
    losses = standardise(fill_with_column_means(mean_losses(view, state.models[1:], ids)))
    if block_scale:
        losses = losses / np.sqrt(losses.shape[1])
    columns = np.hstack([state.columns, losses])
    labels = kmeans(columns, clusters, view.rng("clusters", state.rounds))
    labels = with_enough(labels, columns, view.least_members)
    rows = np.zeros((labels.max() + 1, len(state.models) - 1))
    np.add.at(rows, (labels, previous[ids]), view.sizes[ids])
    models = rows / rows.sum(axis=1, keepdims=True) @ state.models[1:]
    return replace(state, models=np.vstack([state.models[:1], models]), cluster=cluster_rows(view, labels))
