"""Clusters of hospitals by their signatures, and the clusters' models.

The method follows CHiP-FL (Zhou), section 4 and appendix A. Row 0 of the server's models is the global model, and row
``1 + k`` the model of cluster ``k``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from raysim.core.host import one_thread
from raysim.strategies.base import (
    FederationView,
    Floats,
    Ids,
    LocalProblem,
    Objective,
    PositiveInt,
    Proximal,
    State,
    Update,
    Upload,
)
from raysim.strategies.shared.signatures import Block, signature_matrix, signatures

CLUSTERS = 5
"""The default number of clusters of hospitals, from CHiP-FL's hierarchical baseline."""

Clusters = PositiveInt | Literal["auto"]
"""The number of clusters of hospitals; ``auto``: :data:`CLUSTERS`, or the number of hospitals with training rows if
that is smaller."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ReclusteringState(State):
    """The state of a strategy whose clusters change during training.

    ``columns [h, S']`` has the standardised signatures of the ``h`` hospitals with training rows, and ``rounds`` is the
    number of finished rounds.
    """

    columns: Floats
    rounds: int = 0


def check_enough_hospitals(clusters: int, sizes: Ids) -> None:
    """Raise ``ValueError`` if there are fewer hospitals with training rows than clusters."""
    hospitals = int(np.count_nonzero(sizes))
    if clusters > hospitals:
        raise ValueError(f"clusters: {clusters} is more than the {hospitals} hospitals with training rows; lower it")


def number_of(clusters: Clusters, sizes: Ids) -> int:
    """Return the number of clusters for the setting ``clusters``.

    ``sizes [N]`` has the number of training rows of each hospital.
    """
    return min(CLUSTERS, int(np.count_nonzero(sizes))) if clusters == "auto" else clusters


def capped(clusters: Clusters, sizes: Ids) -> str:
    """Return a remark if ``clusters`` is ``auto`` and gives fewer clusters than :data:`CLUSTERS`, else an empty text.

    ``sizes [N]`` has the number of training rows of each hospital.
    """
    number = number_of(clusters, sizes)
    if clusters != "auto" or number == CLUSTERS:
        return ""
    return f"clusters: {number} in place of {CLUSTERS}, one for each hospital with training rows"


def clustered_state(
    view: FederationView, clusters: int, blocks: Sequence[Block], block_scale: bool, recluster_every: int
) -> State:
    """Cluster hospitals by their signatures, and return the state with the initial model for each cluster.

    If ``recluster_every`` is not 0, the state is a :class:`ReclusteringState`.
    """
    trainable = view.trainable
    columns = signature_matrix(signatures(view, blocks)[trainable], view.classes, blocks, block_scale)
    labels = with_enough(kmeans(columns, clusters, view.rng("clusters")), columns, view.least_members)
    models, cluster = np.repeat(view.initial[None, :], 2 + labels.max(), axis=0), cluster_rows(view, labels)
    if recluster_every:
        return ReclusteringState(models=models, cluster=cluster, columns=columns)
    return State(models=models, cluster=cluster)


def cluster_rows(view: FederationView, labels: Ids) -> Ids:
    """Return the index in ``State.models`` of the model of each hospital's cluster, ``[N]``.

    ``labels [h]`` are the clusters of hospitals with training rows; all other hospitals join the cluster with the most
    training rows.
    """
    ids = view.trainable
    cluster = np.full(len(view.sizes), 1 + np.bincount(labels, weights=view.sizes[ids]).argmax(), dtype=np.int64)
    cluster[ids] = 1 + labels
    return cluster


def kmeans(rows: Floats, clusters: int, rng: np.random.Generator) -> Ids:
    """Cluster the points ``rows [N, D]`` by k-means (k-means++, 10 starts, 300 iterations), and return labels ``[N]``.

    Clusters are numbered in the order of their first points. There are at most as many clusters as distinct points.
    """
    from sklearn.cluster import KMeans  # a second to import, and only clustered strategies need it

    seed = int(rng.integers(2**31))
    clusters = min(clusters, len(np.unique(rows, axis=0)))
    # One thread: sums then do not depend on the number of cores, and few hospitals are clustered faster.
    with one_thread():
        fitted = KMeans(clusters, init="k-means++", n_init=10, max_iter=300, tol=1e-4, random_state=seed).fit(rows)
    return by_smallest_member(fitted.labels_)


def with_enough(labels: Ids, rows: Floats, least: int) -> Ids:
    """Merge clusters until each has at least ``least`` hospitals or one cluster is left; return the new labels ``[N]``.

    While a cluster is too small, the smallest cluster joins the cluster with the nearest mean of ``rows [N, D]``.
    """
    while True:
        sizes = np.bincount(labels)
        small = int(sizes.argmin())
        if sizes[small] >= least or len(sizes) == 1:
            return labels
        centres = np.stack([rows[labels == k].mean(axis=0) for k in range(len(sizes))])
        apart = np.linalg.norm(centres - centres[small], axis=1)
        apart[small] = np.inf
        labels = by_smallest_member(np.where(labels == small, apart.argmin(), labels))


def by_smallest_member(labels: Ids) -> Ids:
    """Renumber cluster labels ``[N]`` as 0, 1, ... in the order in which they first appear."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def members(state: State) -> Ids:
    """Return the index in ``state.models`` of the model of each hospital's cluster, ``[N]``.

    Raises ``ValueError`` if hospitals are not clustered.
    """
    if state.cluster is None:
        raise ValueError("state.cluster: is None, so no hospital has a cluster; set state.cluster in setup")
    return state.cluster


def cluster_problem(view: FederationView, state: State, ids: Ids, lam: float = 0.0, mu: float = 0.0) -> LocalProblem:
    """Return the local training of hospitals ``ids``, with proximal terms towards their cluster's model and the global
    model.

    The terms are ``lam |theta - theta_k|^2 + mu |theta - theta_g|^2`` (CHiP-FL, equation 1), with the cluster model
    ``theta_k`` and the global model ``theta_g``. Hospitals start from their cluster's model. Their changes are averaged
    in each cluster by training rows.
    """
    cluster = members(state)[ids]
    sizes = view.sizes[ids].astype(np.float64)
    participating = np.bincount(cluster, weights=sizes, minlength=len(state.models))
    return LocalProblem(
        start=cluster,
        upload=Upload(sizes / participating[cluster], sum_index=cluster - 1, sums=len(state.models) - 1),
        objective=Objective(proximal=(Proximal(2.0 * lam, cluster), Proximal(2.0 * mu, np.zeros_like(cluster)))),
    )


def cluster_steps(view: FederationView, state: State, update: Update, alpha: float) -> State:
    """Update the cluster models and the global model after a round, and move cluster models towards the global model.

    First each cluster model ``theta_k`` moves by the weighted sum of its participants' changes. Then
    ``theta_g = sum_k N_k/N theta_k``, where ``N_k/N`` is the cluster's share of all training rows. Last,
    ``theta_k <- alpha theta_k + (1 - alpha) theta_g`` (appendix A).
    """
    clusters = state.models[1:] + update.sums
    rows = np.bincount(members(state) - 1, weights=view.sizes, minlength=len(clusters))
    return replace(state, models=two_levels(clusters, rows, alpha))


def two_levels(clusters: Floats, rows: Floats | Ids, alpha: float) -> Floats:
    """Move cluster models by ``1 - alpha`` of the way to the global model, and return all models, ``[1 + K, P]``.

    Row 0 is the global model: the mean of the cluster models, weighted by ``rows``.
    """
    top = (rows / rows.sum()) @ clusters
    return np.vstack([top, alpha * clusters + (1.0 - alpha) * top])
