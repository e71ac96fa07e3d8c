"""Clust-PSI-PFL: hospitals with similar label distributions train together.

D. M. Jimenez-Gutierrez, M. Hassanzadeh, A. Anagnostopoulos, I. Chatzigiannakis, A. Vitaletti: *Clust-PSI-PFL: A
Population Stability Index Approach for Clustered Non-IID Personalized Federated Learning*, arXiv:2512.20363, 2025.

Hospitals send how many rows of each class they have. The hospitals' population stability indices (PSI), in total and
for each class, are standardised and clustered by k-means++. The number of clusters, 2 to K - 1 for K hospitals, is the
one with the largest mean silhouette. Each cluster then runs its own federated averaging, and each hospital uses its
cluster's model.

Choices: shares of classes are smoothed by .05, where the authors add 1e-6 (``epsilon``; see docs/heterogeneity.md).
Without ``clusters``, hospitals form one cluster if they are fewer than three or all alike. With ``allow_one``, as in
the authors' code, they also do so if no number of clusters has a positive silhouette. The configured selection samples
inside each cluster. The paper samples half of each cluster: ``selection: {name: uniform, fraction: 0.5, minimum: 1}``.
Hospitals without training rows are assigned to clusters by features and sizes, if the setting ``by`` includes these
properties (:class:`NearestSkew`). If ``by`` is labels alone, or counts have noise, such hospitals join the cluster
whose centre is nearest to a hospital with PSI 0 (no skew). The search for the number of clusters takes time
proportional to K^2 for each number that it tries. With more than ``search_sample`` hospitals, it uses a sample of this
size.

Beyond the paper, ``by`` names the properties whose PSI is computed, with equal weights. ``attributes`` means quantile
bins of every feature, with a separate bin for missing values. ``sizes`` compares a hospital's share of all rows with
1/K. PSI terms of labels and attributes are unsigned, so hospitals with opposite skews can share a cluster.

Traffic: each hospital once sends its row counts of the C classes. For attributes of D columns, each hospital also sends
``(bins + 1) D`` scalars, from which the server computes common bin edges. The hospital then receives ``(bins - 1) D``
edges and sends ``(bins + 1) D`` counts. In a round, each participant receives its cluster's model of P scalars, and
sends back P scalars and the number of its training rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import (
    CLUSTERS,
    FederationView,
    Floats,
    Ids,
    Limit,
    LocalProblem,
    Needs,
    Newcomers,
    PositiveInt,
    State,
    Strategy,
    Training,
    Update,
    at_least,
    choose,
)
from raysim.strategies.shared.clustering import (
    check_enough_hospitals,
    cluster_problem,
    cluster_steps,
    kmeans,
    members,
    with_enough,
)
from raysim.strategies.shared.feature_bins import FeatureCounts, FeatureQuantiles, feature_counts, feature_edges
from raysim.strategies.shared.label_counts import LabelCounts, check_classes, check_epsilon, label_counts
from raysim.strategies.shared.psi import (
    EPSILON,
    Smoothing,
    bin_counts,
    bin_indices,
    check_smoothing,
    feature_terms,
    psi_rows,
    psi_terms,
    size_terms,
)
from raysim.strategies.shared.signatures import nearest_cluster, standardise
from raysim.strategies.shared.silhouette import best_clusters
from raysim.strategies.trees.by_cluster import ClusterTrees

Aspect = Literal["labels", "attributes", "sizes"]
ASPECTS: tuple[Aspect, ...] = ("labels", "attributes", "sizes")


@dataclass(frozen=True, eq=False)
class Skews:
    """Counts of the rows of ``h`` hospitals. A count that is not needed is an array without columns."""

    labels: Floats
    """The number of rows of each of C classes, ``[h, C]``."""
    features: Floats
    """The number of values in each of B bins of each of D features, ``[h, D, B]``. The last bin is for missing
    values."""
    sizes: Ids
    """The number of rows of each hospital, ``[h]``."""

    def blocks(self, aspects: Sequence[Aspect], epsilon: Smoothing, among: Skews) -> list[Floats]:
        """Return the population stability indices of h hospitals, an array ``[h, columns]`` for each of the
        ``aspects``.

        The reference is the distribution over all hospitals in ``among``.
        """
        made = {
            "labels": lambda: psi_rows(psi_terms(self.labels, among.labels.sum(axis=0), epsilon)),
            "attributes": lambda: feature_terms(self.features, epsilon, among.features.sum(axis=0)),
            "sizes": lambda: size_terms(self.sizes, among.sizes.mean())[:, None],
        }
        return [made[aspect]() for aspect in ASPECTS if aspect in aspects]


def comparable(blocks: Sequence[Floats], among: Sequence[Floats]) -> Floats:
    """Standardise the columns of ``blocks``, and return the blocks side by side in one table.

    Means and standard deviations are those of the same columns in ``among``. Each block has the same
    weight, however many columns it has.
    """
    scaled = standardise(np.concatenate(blocks, axis=1), np.concatenate(among, axis=1))
    if len(among) > 1:
        scaled = scaled * np.concatenate([np.full(block.shape[1], block.shape[1] ** -0.5) for block in among])
    return scaled


@dataclass(frozen=True, eq=False)
class NearestSkew(Newcomers):
    """The rule for a hospital that did not take part in training: it joins the most similar cluster.

    The hospital's label distribution is computed from its labelled rows; if there are none, labels are not compared.
    """

    participants: Skews
    """The counts of the h hospitals that were clustered."""
    cluster: Ids
    """For each of the h clustered hospitals, the index of its cluster's model in ``State.models``, ``[h]``."""
    by: tuple[Aspect, ...]
    epsilon: Smoothing
    classes: int
    edges: Floats | None
    """The edges between each feature's bins, ``[D, B - 2]``; None if features are not compared."""

    def row(self, X: NDArray[Any], observed: NDArray[np.bool_], labels: NDArray[Any]) -> int | None:
        """See :class:`raysim.strategies.base.Newcomers`."""
        known = [aspect for aspect in self.by if len(labels) or aspect != "labels"]
        if not known or not len(X):
            return None
        features = np.zeros((1, 0))
        if self.edges is not None:
            home, bins = np.zeros(len(X), np.int64), self.edges.shape[1] + 2
            features = bin_counts(bin_indices(X, observed, self.edges), home, 1, bins).astype(np.float64)
        counts = np.bincount(labels.astype(np.int64), minlength=self.classes)[None].astype(np.float64)
        own = Skews(counts, features, np.array([len(X)]))
        theirs = self.participants.blocks(known, self.epsilon, self.participants)
        ours = own.blocks(known, self.epsilon, self.participants)
        return nearest_cluster(comparable(ours, theirs)[0], comparable(theirs, theirs), self.cluster)


@dataclass(frozen=True)
class ClustPsi(Strategy):
    """Clusters of hospitals by population stability indices (Clust-PSI-PFL)."""

    title: ClassVar[str] = "Clust-PSI-PFL"
    needs: ClassVar[Needs] = CLUSTERS
    serves = ("cluster",)

    by: tuple[Aspect, ...] = ("labels",)
    """The properties by which hospitals are compared: ``labels``, ``attributes`` (features), ``sizes``, or several."""
    clusters: PositiveInt | None = None
    """τ, the number of clusters; null means the number with the largest silhouette."""
    allow_one: bool = False
    """Whether all hospitals form one cluster if no number of clusters has a positive silhouette."""
    privacy_epsilon: float | None = None
    """ε of the Laplace noise on label counts; null adds none."""
    bins: Annotated[int, Limit(at_least, 2)] = 10
    """The number of quantile bins of each feature, if hospitals are compared by attributes."""
    search_sample: Annotated[int, Limit(at_least, 3)] = 200
    """With more hospitals than this, the number of clusters is searched on a sample of this size."""
    epsilon: Smoothing = EPSILON
    """The smoothing of shares before PSI is computed: a number that is added to every share, or ``counts`` (half a row
    is added to every bin)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.by:
            raise ValueError(f"by: is empty; name some of {', '.join(ASPECTS)}")
        check_epsilon(self.privacy_epsilon)
        check_smoothing(self.epsilon)

    def check(self, names: Sequence[str], sizes: Ids) -> None:
        if self.clusters is not None:
            check_enough_hospitals(self.clusters, sizes)

    def check_training(self, training: Training) -> None:
        if "labels" in self.by:
            check_classes("strategy.by: labels", training.classes, "use attributes or sizes, or another strategy")

    def unused_settings(self) -> Mapping[str, str]:
        searched = {} if self.clusters is None else dict.fromkeys(("allow_one", "search_sample"), "clusters: null")
        of = {"privacy_epsilon": "labels", "bins": "attributes"}
        return searched | {name: f"by: [{aspect}]" for name, aspect in of.items() if aspect not in self.by}

    def with_trees(self) -> Strategy:
        return ClusterTrees(self)

    def setup(self, view: FederationView) -> State:
        trainable = view.trainable
        rows, plain = self._rows(view, trainable)
        if self.clusters is not None:
            labels = kmeans(rows, self.clusters, view.rng("clusters", self.clusters))
        else:
            labels = best_clusters(
                rows,
                lambda number: view.rng("clusters", number),
                allow_one=self.allow_one,
                search_sample=self.search_sample,
            )
        labels = with_enough(labels, rows, view.least_members)
        centres = np.stack([rows[labels == k].mean(axis=0) for k in range(labels.max() + 1)])
        cluster = np.full(len(view.sizes), 1 + np.linalg.norm(centres - plain, axis=1).argmin(), dtype=np.int64)
        cluster[trainable] = 1 + labels
        return State(models=np.repeat(view.initial[None, :], 1 + len(centres), axis=0), cluster=cluster)

    def select(self, view: FederationView, state: State, round: int) -> Ids:
        cluster = members(state)[view.trainable]
        sampled = []
        for row in range(1, len(state.models)):
            # The first cluster samples like a run without clusters, so that a single cluster is federated averaging.
            key = (round,) if row == 1 else (round, row)
            sampled.append(choose(view, state, view.trainable[cluster == row], "sample", *key, start=members(state)))
        return np.sort(np.concatenate(sampled))

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return cluster_problem(view, state, ids)

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        return cluster_steps(view, state, update, alpha=1.0)

    def asks(self, rounds: int) -> Mapping[str, int]:
        return {LabelCounts.name: 1} if "labels" in self.by else {}

    def newcomers(self, view: FederationView, state: State) -> Newcomers | None:
        kinds = (LabelCounts.name, FeatureQuantiles.name, FeatureCounts.name)
        if self.privacy_epsilon is not None or any(view.noisy(kind) for kind in kinds):
            return None
        ids = view.trainable
        edges = feature_edges(view, self.bins) if "attributes" in self.by else None
        return NearestSkew(self._skews(view, ids), members(state)[ids], self.by, self.epsilon, view.classes, edges)

    def _rows(self, view: FederationView, ids: Ids) -> tuple[Floats, Floats]:
        """Return the standardised PSI values of the hospitals ``ids``, and those of a hospital whose PSI is 0."""
        skews = self._skews(view, ids)
        blocks = skews.blocks(self.by, self.epsilon, skews)
        plain = comparable([np.zeros((1, block.shape[1])) for block in blocks], blocks)[0]
        # Equal distributions of different sizes may differ in the last bits, which must not form clusters.
        return np.round(comparable(blocks, blocks), 10), plain

    def _skews(self, view: FederationView, ids: Ids) -> Skews:
        nothing = np.zeros((len(ids), 0))
        return Skews(
            label_counts(view, self.privacy_epsilon)[ids] if "labels" in self.by else nothing,
            feature_counts(view, self.bins)[ids] if "attributes" in self.by else nothing,
            view.sizes[ids],
        )
