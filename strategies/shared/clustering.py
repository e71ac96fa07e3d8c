"""Clusters of hospitals by their signatures, and the clusters' models.

CHiP-FL (Zhou), section 4 and appendix A. ``N_k`` is the number of training rows of all members of cluster ``k``, and
``N`` the number of all hospitals' rows. Row 0 of the models is the global model, and row ``1 + k`` the model of cluster
``k``.
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
"""The number of clusters of hospitals. ``auto`` means :data:`CLUSTERS`, or the number of hospitals with training rows
if it is smaller."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ReclusteringState(State):
    """The state for clusters that change during training.

    ``columns [h, D']`` are the standardised signatures by which the ``h`` hospitals with training rows were first
    clustered. ``rounds`` is the number of finished rounds.
    """

    columns: Floats
    rounds: int = 0


def check_enough_hospitals(clusters: int, sizes: Ids) -> None:
    """Raise ``ValueError`` if there are fewer hospitals with training rows than clusters."""
    hospitals = int(np.count_nonzero(sizes))
    if clusters > hospitals:
        raise ValueError(f"clusters: {clusters} is more than the {hospitals} hospitals with training rows; lower it")


def number_of(clusters: Clusters, sizes: Ids) -> int:
    """Return the number of clusters for the setting ``clusters`` and hospitals with ``sizes [N]`` training rows."""
    return min(CLUSTERS, int(np.count_nonzero(sizes))) if clusters == "auto" else clusters


def capped(clusters: Clusters, sizes: Ids) -> str:
    """Return a remark on the number of clusters with ``auto``, if there are fewer hospitals than :data:`CLUSTERS`.

    Otherwise the text is empty.
    """
    number = number_of(clusters, sizes)
    if clusters != "auto" or number == CLUSTERS:
        return ""
    return f"clusters: {number} in place of {CLUSTERS}, one for each hospital with training rows"


def clustered_state(
    view: FederationView, clusters: int, blocks: Sequence[Block], block_scale: bool, recluster_every: int
) -> State:
    """Call hospitals for their signatures, cluster hospitals, and start every cluster model at the initial model.

    If ``recluster_every`` is not 0, the state also has the values that
    :func:`raysim.strategies.hospital_clusters.by_signature.reclustered` needs.
    """
    trainable = view.trainable
    columns = signature_matrix(signatures(view, blocks)[trainable], view.classes, blocks, block_scale)
    labels = with_enough(kmeans(columns, clusters, view.rng("clusters")), columns, view.least_members)
    models, cluster = np.repeat(view.initial[None, :], 2 + labels.max(), axis=0), cluster_rows(view, labels)
    if recluster_every:
        return ReclusteringState(models=models, cluster=cluster, columns=columns)
    return State(models=models, cluster=cluster)


def cluster_rows(view: FederationView, labels: Ids) -> Ids:
    """Return the model row of each hospital ``[N]`` from the ``labels [h]`` of the hospitals with training rows.

    Hospitals without training rows have sent no signature and join the cluster with the most training rows.
    """
    ids = view.trainable
    cluster = np.full(len(view.sizes), 1 + np.bincount(labels, weights=view.sizes[ids]).argmax(), dtype=np.int64)
    cluster[ids] = 1 + labels
    return cluster


def kmeans(rows: Floats, clusters: int, rng: np.random.Generator) -> Ids:
    """Return labels ``[N]`` of k-means (k-means++, 10 starts, 300 iterations, tolerance 1e-4) on ``rows [N, D]``.

    Clusters are numbered by their smallest member. Their number is at most the number of distinct rows.
    """
    from sklearn.cluster import KMeans  # a second to import, and only clustered strategies need it

    seed = int(rng.integers(2**31))
    clusters = min(clusters, len(np.unique(rows, axis=0)))
    # One thread: sums then do not depend on the number of cores, and few hospitals are clustered faster.
    with one_thread():
        fitted = KMeans(clusters, init="k-means++", n_init=10, max_iter=300, tol=1e-4, random_state=seed).fit(rows)
    return by_smallest_member(fitted.labels_)


def with_enough(labels: Ids, rows: Floats, least: int) -> Ids:
    """Return labels ``[N]`` of clusters that have at least ``least`` members each, if there are enough hospitals.

    While a cluster is too small, the smallest cluster (ties go to the first) joins the cluster with the nearest mean of
    ``rows [N, D]``.
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
    """Renumber labels ``[N]`` to 0, 1, ... in the order in which clusters first appear."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def members(state: State) -> Ids:
    """Return the row of each hospital's cluster model, ``[N]``. Raises ``ValueError`` if there are no clusters."""
    if state.cluster is None:
        raise ValueError("this state has no clusters")
    return state.cluster


def cluster_problem(view: FederationView, state: State, ids: Ids, lam: float = 0.0, mu: float = 0.0) -> LocalProblem:
    """Return the problem with a proximal term towards both models: ``lam |theta - theta_k|^2 + mu |theta -
    theta_g|^2``.

    This is CHiP-FL's equation 1, without factors 1/2. Hospitals start from the cluster model. A hospital's delta is
    added to its cluster's sum with the weight ``n_i / sum n_j`` over the cluster's participants.
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
    """Apply the two levels of aggregation, then move clusters towards the global model.

    ``theta_k += sum of its deltas`` (models of clusters without deltas do not change),
    ``theta_g = sum_k N_k/N theta_k``, then for every cluster ``theta_k <- alpha theta_k + (1 - alpha) theta_g``
    (appendix A).
    """
    clusters = state.models[1:] + update.sums
    rows = np.bincount(members(state) - 1, weights=view.sizes, minlength=len(clusters))
    return replace(state, models=two_levels(clusters, rows, alpha))


def two_levels(clusters: Floats, rows: Floats | Ids, alpha: float) -> Floats:
    """Return the models ``[1 + K, P]`` for cluster models ``[K, P]`` and their clusters' training ``rows [K]``.

    Row 0 is the mean of the cluster models, weighted by rows. Each cluster model is moved towards row 0 by the share
    ``1 - alpha`` of the distance.
    """
    top = (rows / rows.sum()) @ clusters
    return np.vstack([top, alpha * clusters + (1.0 - alpha) * top])
