"""One model for each cluster of patients: every hospital trains it on its rows in the cluster.

FedGMC, CBFL and k-FED share this part (FedGMC, Algorithm 2). Row ``1 + g`` of the server's models is the model of
cluster ``g``, and row 0 is the mean of the cluster models, weighted by training rows. Hospital i has ``n_ig`` rows in
cluster g and sends these numbers once. A hospital of the cohort trains the model of each cluster with ``n_ig > 0``, and
models are averaged with the weights ``n_ig``. A cluster without training rows is left out: its patients belong to their
next most likely cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import (
    Context,
    FederationView,
    Floats,
    Ids,
    LocalProblem,
    Objective,
    Proximal,
    RowGroups,
    State,
    Statistic,
    Strategy,
    Update,
    Upload,
    group_sizes,
    own_state,
    statistics_of,
)
from raysim.strategies.patient_clusters.encoding import encoded
from raysim.strategies.patient_clusters.gaussian_mixtures import Mixture
from raysim.strategies.shared.clustering import two_levels
from raysim.strategies.shared.weights import group_weights

FEWEST, MOST = 3, 8
"""The smallest and the largest number of clusters that the server tries if none is configured."""


@dataclass(frozen=True, eq=False)
class LocalLabels:
    """Centres that hospitals have computed from their own patients, and each centre's cluster in the federation."""

    home: Ids
    """The id of each centre's hospital, ``[c]``."""
    centres: Floats
    """The centres, with d features each, ``[c, d]``."""
    labels: Ids
    """The index of each centre's cluster in the federation, ``[c]``."""
    hospitals: int
    """N, the number of hospitals in the federation."""


@dataclass(frozen=True, eq=False)
class PatientClusters:
    """A division of patients into G clusters.

    A patient belongs to the cluster g with the largest ``offset_g - |A_g (x - mean_g)|^2 / 2``.

    The class is a :class:`raysim.strategies.base.Division`. ``x [d]`` are a patient's values in ``columns``, encoded
    with ``encoder``. Clusters have ``means [G, d]``, ``offsets [G]``, and lower triangular ``factors [G, d, d]``, the
    ``A_g`` (None: the identity). If ``local`` has centres of a patient's hospital, the patient belongs to the cluster
    of the nearest of these centres.
    """

    columns: Ids
    means: Floats
    offsets: Floats
    factors: Floats | None = None
    encoder: str | None = None
    local: LocalLabels | None = None

    @property
    def count(self) -> int:
        """The number of clusters."""
        return len(self.means)

    @property
    def scalars(self) -> int | Ids:
        """Return the number of scalars that each hospital receives with the clusters: one number, or an array ``[N]``.

        They are the indices in ``columns`` and each cluster's mean; with ``factors``, also each cluster's offset and
        factor. A hospital with its own centres (``local``) receives only the cluster of each of these centres.
        """
        d = self.means.shape[1]
        whole: int = len(self.columns) + self.count * (d if self.factors is None else 1 + d + d * (d + 1) // 2)
        if self.local is None:
            return whole
        received: Ids = np.bincount(self.local.home, minlength=self.local.hospitals)
        received[received == 0] = whole
        return received

    def assign(self, X: NDArray[Any], observed: NDArray[np.bool_], hospital: int) -> Ids:
        """Return the cluster of each of n rows of a hospital, ``[n]``. ``X [n, F]`` are the rows' features."""
        x = encoded(X, self.columns, self.encoder)
        if self.local is None or hospital not in self.local.home:
            return self.best(x)
        mine = self.local.home == hospital
        return np.asarray(self.local.labels[mine][nearest_centres(self.columns, self.local.centres[mine]).best(x)])

    def best(self, x: Floats) -> Ids:
        return np.asarray(self.scores(x).argmax(axis=1))

    def scores(self, x: Floats) -> Floats:
        """Return the score of each cluster for the values ``x [n, d]`` of n patients, ``[n, G]``. A patient belongs to
        the cluster with the largest score.

        A row's scores do not depend on the other rows, not even in the last bit.
        """
        scores = np.empty((len(x), self.count))
        for g in range(self.count):
            # No matrix products: in them a row's last bits depend on the number of rows.
            apart = x - self.means[g]
            if self.factors is not None:
                apart = np.einsum("nd,ed->ne", apart, self.factors[g])
            scores[:, g] = self.offsets[g] - 0.5 * np.einsum("ne,ne->n", apart, apart)
        return scores

    def only(self, groups: Ids) -> PatientClusters:
        """Return the division that has only the clusters with the indices ``groups``."""
        factors = None if self.factors is None else self.factors[groups]
        left = replace(self, means=self.means[groups], offsets=self.offsets[groups], factors=factors, local=None)
        if self.local is None:
            return left
        labels = left.best(self.local.centres)
        for new, old in enumerate(groups.tolist()):
            labels[self.local.labels == old] = new
        return replace(left, local=replace(self.local, labels=labels))


@dataclass(frozen=True)
class ClustersLeft(Statistic):
    """A message with the indices ``clusters`` of all clusters with training rows. Hospitals send nothing back."""

    name = "clusters_left"
    shape = (0,)

    def value(self, at: Context) -> Floats:
        return np.empty(0)


@dataclass(frozen=True, eq=False, kw_only=True)
class PatientState(State):
    """The state of strategies with clusters of patients."""

    clusters: PatientClusters
    """The clusters that contain training rows of at least one hospital."""
    rows: Ids
    """Each hospital's number of training rows in each of the G clusters, ``[N, G]``."""
    formed: int
    """The number of clusters that the server formed, including those without training rows."""


def nearest_centres(columns: Ids, centres: Floats, encoder: str | None = None) -> PatientClusters:
    """Return the division in which each patient belongs to the nearest of ``centres [G, d]``."""
    return PatientClusters(columns, centres, np.zeros(len(centres)), encoder=encoder)


def most_likely_components(columns: Ids, mixture: Mixture) -> PatientClusters:
    """Return the division in which each patient x belongs to the component g of ``mixture`` with the largest product of
    weight and density, ``w_g N(x; mu_g, Sigma_g)``."""
    lower = np.linalg.cholesky(mixture.covariances)
    spread = np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
    return PatientClusters(columns, mixture.means, np.log(mixture.weights) - spread, np.linalg.inv(lower))


def numbers_to_try(clusters: int | None, points: int) -> Sequence[int]:
    """Return the numbers of clusters to try: ``clusters`` if given, or the numbers from 3 to 8 that are below
    ``points``, the number of points to cluster.

    With fewer than four points, the only number is ``points - 1``, but at least 1.
    """
    if clusters is not None:
        return (clusters,)
    most = max(1, min(MOST, points - 1))
    return range(min(FEWEST, most), most + 1)


def patient_state(view: FederationView, clusters: PatientClusters) -> PatientState:
    """Call hospitals for their numbers of rows in each cluster, and return the state before the first round."""
    rows = group_sizes(view, clusters)
    trained = np.flatnonzero(rows.any(axis=0))
    if len(trained) < clusters.count:
        statistics_of(view, ClustersLeft(), clusters=trained)
    return PatientState(
        models=np.repeat(view.initial[None, :], 1 + len(trained), axis=0),
        clusters=clusters.only(trained),
        rows=rows[:, trained],
        formed=clusters.count,
    )


def patient_problem(state: State, ids: Ids, lam: float = 0.0, mu: float = 0.0) -> LocalProblem:
    """Return the problem in which hospitals ``ids`` train the model of each cluster on their rows in the cluster.

    The loss has the proximal terms of CHiP-FL, ``lam |theta - theta_g|^2 + mu |theta - theta_0|^2``, with ``theta_g``
    the cluster's model and ``theta_0`` the mean of all cluster models.
    """
    rows = own_state(state, PatientState).rows[ids]
    at, cluster = np.nonzero(rows)
    counts = rows[at, cluster]
    return LocalProblem(
        start=1 + cluster,
        upload=Upload(group_weights(counts, cluster), sum_index=cluster, sums=rows.shape[1]),
        objective=Objective(proximal=(Proximal(2.0 * lam, 1 + cluster), Proximal(2.0 * mu, np.zeros_like(cluster)))),
        groups=RowGroups(ids[at], cluster, counts),
    )


def patient_step(state: State, update: Update, alpha: float = 1.0) -> PatientState:
    """Return the state after a round.

    Each cluster's model moves by the mean of its updates, and then by ``1 - alpha`` of the way to the mean of all
    clusters' models.
    """
    state = own_state(state, PatientState)
    return replace(state, models=two_levels(state.models[1:] + update.sums, state.rows.sum(axis=0), alpha))


class PatientClustering(Strategy):
    """A strategy with one model for each cluster of patients.

    Subclasses find the clusters in ``setup`` and return a :func:`patient_state`.
    """

    def division(self, view: FederationView, state: State) -> PatientClusters:
        return own_state(state, PatientState).clusters

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return patient_problem(state, ids)

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        return patient_step(state, update)

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        """Return, under the name ``cluster``, the row of ``state.models`` that serves the patients of each cluster at
        each hospital, ``[N, G]``."""
        hospitals, clusters = own_state(state, PatientState).rows.shape
        return {"cluster": np.tile(np.arange(1, 1 + clusters), (hospitals, 1))}

    def facts(self, view: FederationView, state: State) -> dict[str, float]:
        """Return the number of clusters with training rows, and the number that the server formed."""
        state = own_state(state, PatientState)
        return {"patient_clusters": state.clusters.count, "patient_clusters_found": state.formed}
