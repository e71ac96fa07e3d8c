"""k-FED: patients are clustered with one message from each hospital, and each cluster has a model.

D. K. Dennis, T. Li, V. Smith: *Heterogeneity for the Win: One-Shot Federated Clustering*, ICML 2021, Algorithms 1 and
2. Here patients are clustered and each cluster has a model, as in the baseline of FedGMC (Ye et al.), Table 2.

1. Each hospital clusters its patients into at most k' clusters (:func:`local_centres`) and sends the centres of these
   clusters. Algorithm 1 allows fewer than k' clusters at a hospital. Here, n rows have at most n/2 clusters, and a
   hospital with one row sends no centre.
2. The server starts from the centres of the first hospital that sent k' centres. It repeatedly adds the centre farthest
   from the chosen centres, until there are K. Lloyd's iterations then run over all centres, unweighted.
3. Each patient belongs to the nearest of the K centres, and federated averaging trains a model for each cluster. With
   ``inherit`` a patient belongs to the cluster of the nearest centre that the patient's hospital sent. If the hospital
   sent none, the patient belongs to the nearest of the K centres.

Choices: K is the number from 3 to 8 for which the server's clustering has the largest mean silhouette. If K < k', step
2 chooses K centres of one hospital: its first, and repeatedly the centre farthest from the chosen centres. If no
hospital sent k' centres, the server starts from the centres of the first hospital among those that sent the most.

The centre of a cluster of one row is this row. A row far from all others often forms such a cluster, so the row's
values leave the hospital. Such clusters are more frequent at hospitals with few rows.

Traffic, with d continuous features among D value columns, G clusters, and P scalars of a model:

- Each hospital once sends D scalars that tell which of its columns are continuous, the ``k' d`` scalars of its centres
  (filled up if it has fewer than k' centres), and its number of rows in each of the G clusters. A hospital with n
  rows sends at most n/2 centres, and with one row none.
- Each hospital once receives the indices of the d continuous columns, and later ``d + G d`` scalars: the indices again,
  and the centres of the clusters. With ``inherit``, a hospital that sent centres later receives at most k' scalars
  instead: for each of these centres, the index of its cluster. If only G' clusters have training rows, it also receives
  their G' indices.
- In a round, each participant receives and sends back P scalars for each cluster in which it has rows.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from raysim.core.host import one_thread
from raysim.strategies.base import (
    Context,
    FederationView,
    Floats,
    Ids,
    Needs,
    PositiveInt,
    State,
    Statistic,
    Unfit,
    statistics_of,
)
from raysim.strategies.patient_clusters.cluster_models import (
    LocalLabels,
    PatientClustering,
    nearest_centres,
    numbers_to_try,
    patient_state,
)
from raysim.strategies.patient_clusters.continuous import Features, chosen, clustered_columns, defined, filled
from raysim.strategies.shared.silhouette import best_labels

ITERATIONS = 300


@dataclass(frozen=True)
class LocalCentres(Statistic):
    """The centres of at most k' clusters of a hospital's patients in the received ``columns [d]``.

    The table is ``[k', d]``; with fewer centres, its last rows are NaN.
    """

    shape: tuple[int, int]
    name = "local_centres"
    undefined = True

    def value(self, at: Context) -> Floats:
        most, _ = self.shape
        return filled(local_centres(chosen(at.rows.X, at.received["columns"]), most, at.rng()), most)


@dataclass(frozen=True)
class KFed(PatientClustering):
    """Clusters of patients from hospitals' own centres (k-FED)."""

    title: ClassVar[str] = "k-FED"
    needs: ClassVar[Needs] = Needs.more("sends each hospital's own cluster centres")

    clusters: PositiveInt | None = None
    """K, the number of clusters of patients; null means the number from 3 to 8 with the largest silhouette."""
    local_clusters: PositiveInt = 4
    """k', the largest number of centres that a hospital sends."""
    features: Features = "continuous"
    """The features by which patients are clustered: ``continuous`` ones, or ``values`` (all but flags of missing
    values)."""
    inherit: bool = False
    """Whether a patient belongs to the cluster of the nearest centre that the hospital sent, instead of the nearest of
    the K centres."""

    def setup(self, view: FederationView) -> State:
        columns = clustered_columns(view, self.features)
        program = LocalCentres((self.local_clusters, len(columns)))
        by_hospital = [defined(sent) for sent in statistics_of(view, program, view.trainable, columns=columns)]
        points = np.concatenate(by_hospital)
        if not len(points):
            raise Unfit(
                "local_clusters: no hospital has the two training rows from which a centre is computed; choose a "
                "strategy that does not cluster patients"
            )
        tried = [server_centres(by_hospital, k) for k in numbers_to_try(self.clusters, len(points))]
        best = best_labels(points, [labels for labels, _ in tried], view.rng("silhouette"))
        labels, centres = tried[best]
        clusters = nearest_centres(columns, centres)
        if self.inherit:
            home = np.repeat(view.trainable, [len(theirs) for theirs in by_hospital])
            clusters = replace(clusters, local=LocalLabels(home, points, labels, len(view.sizes)))
        return patient_state(view, clusters)


def local_centres(rows: Floats, clusters: int, rng: np.random.Generator) -> Floats:
    """Cluster ``rows [n, d]`` into at most k' clusters, and return their centres (Algorithm 1, after Awasthi and
    Sheffet, 2012). k' is ``clusters``, but at most n/2.

    K-means++ chooses k' seeds after a projection of the rows on their first k' right singular vectors. ``S_r`` are the
    rows that are at least three times nearer to seed r than to any other seed. Lloyd's iterations start, without
    projection, from the means of the ``S_r``, or from the seed itself if ``S_r`` is empty.
    """
    clusters = min(clusters, len(rows) // 2)  # with more clusters, some centres would be single rows
    if not clusters:
        return rows[:0]
    different = np.unique(rows, axis=0)
    if len(different) <= clusters:
        return different
    from sklearn.cluster import kmeans_plusplus  # a second to import, and only clustering needs it

    _, _, directions = np.linalg.svd(rows, full_matrices=False)
    projected = rows @ directions[:clusters].T
    seeds, at = kmeans_plusplus(projected, clusters, random_state=int(rng.integers(2**31)))
    distances = np.linalg.norm(projected[:, None, :] - seeds, axis=2)
    start = rows[at].copy()
    for r in range(clusters):
        near = (distances[:, [r]] <= distances[:, np.arange(clusters) != r] / 3.0).all(axis=1)
        if near.any():
            start[r] = rows[near].mean(axis=0)
    return lloyd(rows, start)[1]


def server_centres(by_hospital: list[Floats], clusters: int) -> tuple[Ids, Floats]:
    """Cluster the centres that hospitals sent, ``by_hospital``, into ``k`` clusters (Algorithm 2). ``k`` is
    ``clusters``, or the number of different sent centres if this is smaller.

    Return the cluster of each sent centre, and the centres of the clusters, ``[k, d]``.
    """
    points = np.concatenate(by_hospital)
    first = by_hospital[int(np.argmax([len(centres) for centres in by_hospital]))]
    clusters = min(clusters, len(np.unique(points, axis=0)))
    start = farthest_first(first, first[:1], min(clusters, len(np.unique(first, axis=0))))
    return lloyd(points, farthest_first(points, start, clusters))


def farthest_first(points: Floats, start: Floats, count: int) -> Floats:
    """Return ``count`` points: those of ``start [s, d]``, and further ones chosen from ``points``. The next chosen
    point is always the one with the largest distance to its nearest chosen point."""
    centres = list(start)
    while len(centres) < count:
        distances = np.linalg.norm(points[:, None, :] - np.stack(centres), axis=2).min(axis=1)
        centres.append(points[distances.argmax()])
    return np.stack(centres)


def lloyd(rows: Floats, start: Floats) -> tuple[Ids, Floats]:
    """Run Lloyd's k-means over ``rows [n, d]`` from the centres ``start [k, d]``.

    Return each row's cluster ``[n]`` and the centres ``[k, d]``.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    # One thread: sums then do not depend on the number of cores. The warning is about equal initial centres.
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = KMeans(len(start), init=start, n_init=1, max_iter=ITERATIONS, tol=0.0).fit(rows)
    return fitted.labels_.astype(np.int64), fitted.cluster_centers_
