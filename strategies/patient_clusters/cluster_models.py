"""Clusters of patients: each has a model, which every hospital trains on those of its rows that are in the cluster.

What FedGMC, CBFL and k-FED have in common once they have found clusters (FedGMC, Algorithm 2). Row ``1 + g`` of the
models is the model of cluster ``g``, row 0 their mean by training rows. With ``n_ig`` rows of hospital i in cluster g,
which hospitals send once, a hospital of the cohort trains the model of each cluster with ``n_ig > 0``, and models are
averaged by ``n_ig``. A cluster in which nobody has training rows is not trained: it is left out, so that its patients
go to their next most likely cluster, and hospitals are told which clusters there still are.

A hospital starts from as many models as it has clusters. A selection that asks for losses asks about row 0 instead, one
model and one loss for each hospital. No hospital trains from row 0: those that take part receive their models besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import (
    FederationView,
    Floats,
    GroupSizes,
    HospitalRows,
    Ids,
    LocalProblem,
    Objective,
    Proximal,
    RowGroups,
    State,
    Strategy,
    Update,
    Upload,
    at_least,
    own_state,
)
from raysim.strategies.patient_clusters.encoding import encoded
from raysim.strategies.patient_clusters.gaussian_mixtures import Mixture
from raysim.strategies.shared.clustering import two_levels
from raysim.strategies.shared.weights import group_weights

FEWEST, MOST = 3, 8
"""Numbers of clusters among which the server searches."""


@dataclass(frozen=True, eq=False)
class LocalLabels:
    """Centres that hospitals have found by themselves, and the cluster that each centre belongs to."""

    home: Ids
    """The hospital of each centre, ``[c]``."""
    centres: Floats
    """The centres, ``[c, d]``."""
    labels: Ids
    """The cluster of each centre, ``[c]``."""
    hospitals: int
    """N, the hospitals of the federation."""


@dataclass(frozen=True, eq=False)
class PatientClusters:
    """A :class:`raysim.strategies.base.Division`: the cluster g with the largest ``offset_g - |A_g (x - mean_g)|^2 /
    2``.

    ``x [d]`` are a patient's values in ``columns``, as :func:`raysim.strategies.patient_clusters.encoding.encoded` by
    ``encoder``; ``means [G, d]``, ``offsets [G]``, and ``factors [G, d, d]``, the lower triangular matrices ``A_g``
    (None: the nearest mean). Ties go to the smaller g. With ``local`` a patient of a hospital with centres of its own
    is in the cluster of the nearest of these.
    """

    columns: Ids
    means: Floats
    offsets: Floats
    factors: Floats | None = None
    encoder: str | None = None
    local: LocalLabels | None = None

    @property
    def count(self) -> int:
        """G."""
        return len(self.means)

    @property
    def scalars(self) -> int | Ids:
        """The columns, and of each cluster its mean and, where there are factors, its offset and a triangle.

        A hospital with ``local`` centres, which it knows, receives their labels instead: ``[N]``.
        """
        d = self.means.shape[1]
        whole: int = len(self.columns) + self.count * (d if self.factors is None else 1 + d + d * (d + 1) // 2)
        if self.local is None:
            return whole
        received: Ids = np.bincount(self.local.home, minlength=self.local.hospitals)
        received[received == 0] = whole
        return received

    def assign(self, X: NDArray[Any], observed: NDArray[np.bool_], hospital: int) -> Ids:
        """The cluster of each row ``[n]``."""
        x = encoded(X, self.columns, self.encoder)
        if self.local is None or hospital not in self.local.home:
            return self.best(x)
        mine = self.local.home == hospital
        inherited: Ids = self.local.labels[mine][nearest_centres(self.columns, self.local.centres[mine]).best(x)]
        return inherited

    def best(self, x: Floats) -> Ids:
        """The cluster of each of ``x [n, d]``, ``[n]``."""
        best: Ids = self.scores(x).argmax(axis=1)
        return best

    def scores(self, x: Floats) -> Floats:
        """The scores of clusters for ``x [n, d]``, ``[n, G]``; a patient's cluster has the largest.

        A row's scores do not depend on which other rows there are, to the last bit.
        """
        scores = np.empty((len(x), self.count))
        for g in range(self.count):
            # No matrix products, in which a row's last bits depend on how many others there are.
            apart = x - self.means[g]
            if self.factors is not None:
                apart = np.einsum("nd,ed->ne", apart, self.factors[g])
            scores[:, g] = self.offsets[g] - 0.5 * np.einsum("ne,ne->n", apart, apart)
        return scores

    def only(self, groups: Ids) -> PatientClusters:
        """The clusters ``groups`` alone; patients of other clusters go to the most likely of these."""
        factors = None if self.factors is None else self.factors[groups]
        left = replace(self, means=self.means[groups], offsets=self.offsets[groups], factors=factors, local=None)
        if self.local is None:
            return left
        labels = left.best(self.local.centres)
        for new, old in enumerate(groups.tolist()):
            labels[self.local.labels == old] = new
        return replace(left, local=replace(self.local, labels=labels))


@dataclass(frozen=True, eq=False)
class ClustersLeft:
    """Tells hospitals which ``clusters [G]`` there still are. They answer nothing."""

    clusters: Ids
    kind: ClassVar[str] = "clusters_left"

    @property
    def scalars(self) -> int:
        """G."""
        return len(self.clusters)

    def answer(self, rows: HospitalRows) -> Floats:
        return np.empty(0)


@dataclass(frozen=True, eq=False, kw_only=True)
class PatientState(State):
    """The clusters of patients, and how many rows hospitals have in each."""

    clusters: PatientClusters
    """Those in which some hospital has training rows."""
    rows: Ids
    """Each hospital's training rows in each of them, ``[N, G]``."""
    formed: int
    """How many clusters the server formed, those without training rows included."""


def nearest_centres(columns: Ids, centres: Floats, encoder: str | None = None) -> PatientClusters:
    """A patient belongs to the nearest of ``centres [G, d]``."""
    return PatientClusters(columns, centres, np.zeros(len(centres)), encoder=encoder)


def most_likely_components(columns: Ids, mixture: Mixture) -> PatientClusters:
    """A patient belongs to the component with the largest posterior: ``w_g N(x; mu_g, Sigma_g)`` is largest."""
    lower = np.linalg.cholesky(mixture.covariances)
    spread = np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
    return PatientClusters(columns, mixture.means, np.log(mixture.weights) - spread, np.linalg.inv(lower))


def check_number(clusters: int | None) -> None:
    """Raise ``ValueError`` for fewer than one cluster."""
    if clusters is not None:
        at_least("clusters", clusters, 1)


def numbers_to_try(clusters: int | None, points: int) -> Sequence[int]:
    """``clusters`` where given; else 3 to 8, as far as these are fewer than the ``points`` that are clustered."""
    if clusters is not None:
        return (clusters,)
    most = max(1, min(MOST, points - 1))
    return range(min(FEWEST, most), most + 1)


def patient_state(view: FederationView, clusters: PatientClusters) -> PatientState:
    """The state before the first round: hospitals send how many training rows they have in each cluster."""
    rows = np.stack(view.ask(GroupSizes(clusters))).astype(np.int64)
    trained = np.flatnonzero(rows.any(axis=0))
    if len(trained) < clusters.count:
        view.ask(ClustersLeft(trained))
    return PatientState(
        models=np.repeat(view.initial[None, :], 1 + len(trained), axis=0),
        clusters=clusters.only(trained),
        rows=rows[:, trained],
        formed=clusters.count,
    )


def patient_problem(state: State, ids: Ids, lam: float = 0.0, mu: float = 0.0) -> LocalProblem:
    """Hospitals ``ids [H]`` train the model of each cluster in which they have rows, on these rows.

    Regularised as in CHiP-FL, ``lam |theta - theta_g|^2 + mu |theta - theta_0|^2``, towards the cluster's model and the
    mean of all.
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
    """Every cluster's model moves by its hospitals' deltas, then by ``1 - alpha`` towards the mean of all."""
    state = own_state(state, PatientState)
    return replace(state, models=two_levels(state.models[1:] + update.sums, state.rows.sum(axis=0), alpha))


class PatientClustering(Strategy):
    """A strategy whose ``setup`` ends with :func:`patient_state`; training is the same however clusters were found."""

    def division(self, view: FederationView, state: State) -> PatientClusters:
        return own_state(state, PatientState).clusters

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return patient_problem(state, ids)

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        return patient_step(state, update)

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        """Every patient is served the model of their cluster, ``[N, G]``."""
        hospitals, clusters = own_state(state, PatientState).rows.shape
        return {"cluster": np.tile(np.arange(1, 1 + clusters), (hospitals, 1))}

    def facts(self, view: FederationView, state: State) -> dict[str, float]:
        """How many clusters of patients have training rows, and how many were found."""
        state = own_state(state, PatientState)
        return {"patient_clusters": state.clusters.count, "patient_clusters_found": state.formed}
