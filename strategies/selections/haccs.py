"""HACCS: clusters of hospitals with similar labels are sampled by speed and loss; their fastest hospitals take part.

J. Wolfrath, N. Sreekumar, D. Kumar, Y. Wang, A. Chandra: *HACCS: Heterogeneity-Aware Clustered Client Selection for
Accelerated Federated Learning*, IPDPS 2022; details follow the authors' code.

Before training, hospitals send how many rows of each class they have. OPTICS (with at least 2 hospitals in a cluster)
clusters hospitals by the Hellinger distance between their class shares. A hospital that OPTICS labels as noise forms
its own cluster. All hospitals also send their mean loss under the initial model. In each round, participants send their
mean loss again before they train.

In each round, a cluster c has the score ``rho tau_c + (1 - rho) ACL_c / sum ACL``, with the setting ``rho``. ``ACL_c``
is the mean of the last known losses of the cluster's hospitals. ``tau_c = 1 - lat_c / max lat`` is the cluster's speed,
where ``lat_c`` is the mean latency of its hospitals. Until the cohort is full, a cluster is sampled in proportion to
its score (uniformly if all scores are 0), and its fastest hospital outside the cohort joins.

Our choices: noisy counts are clipped at 0. Losses are not squared; the authors' code squares them (``loss_power: 2``).
With ``metric: euclidean``, as in the authors' code, distances are Euclidean, and the OPTICS ordering is cut at the
distance 0.25, as in DBSCAN. Latencies are the simulated round times of hospitals (``system``). If round times are not
simulated, each hospital has a random latency as in the authors' code.

Traffic, in addition to the traffic of training: once, each hospital receives the model's P parameters and sends its C
class counts and its loss. In each round, each participant sends one loss, or one for each group of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from raysim.strategies.base import (
    POOLED,
    Draw,
    FederationView,
    Floats,
    Ids,
    NonNegativeFloat,
    PositiveInt,
    Selection,
    ShareOfOne,
    Training,
    UnitInterval,
    Update,
    mean_losses,
)
from raysim.strategies.selections.sampling import cohort_size
from raysim.strategies.shared.clustering import by_smallest_member
from raysim.strategies.shared.label_counts import check_classes, check_epsilon, label_counts

ODDS = (0.60, 0.20, 0.14, 0.06)
"""The probabilities of the four classes of simulated speed, fastest first."""

COMPUTE = ((0.0, 0.5), (0.5, 1.0), (1.0, 1.5), (1.5, 2.0))
"""The range of a hospital's training time in a round, for each class of speed, in tens of seconds."""

BANDWIDTH = ((75.0, 100.0), (50.0, 75.0), (25.0, 50.0), (1.0, 25.0))
"""The range of a hospital's bandwidth, for each class of speed, in Mbit/s."""

MEGABITS, DELAY = 80.0, (0.02, 0.2)
"""The megabits that a hospital transfers in a round, and the range of the delay before this transfer, in seconds."""


@dataclass(frozen=True)
class Haccs(Selection):
    """Client sampling from clusters of hospitals with similar labels, by speed and loss (HACCS).

    From round to round the selection stores three arrays ``[N]`` over hospitals: ``clusters`` (-1 for hospitals without
    training rows), the last known ``losses``, and ``latencies`` in seconds.
    """

    uses_losses: ClassVar[bool] = True

    rho: UnitInterval = 0.95
    """ρ: the weight of speed in the choice of a cluster; the loss has the weight 1 - ρ."""
    loss_power: NonNegativeFloat = 1.0
    """The power to which losses are raised before a cluster's score is computed from them."""
    metric: Literal["hellinger", "euclidean"] = "hellinger"
    """The distance between label distributions."""
    privacy_epsilon: float | None = None
    """ε of the Laplace noise on label counts; null means no such noise."""
    fraction: ShareOfOne = 0.1
    """The share of hospitals that take part in a round."""
    minimum: PositiveInt = 10
    """The smallest number of hospitals that take part in a round."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_epsilon(self.privacy_epsilon)

    def check_training(self, training: Training) -> None:
        check_classes("selection.name: haccs", training.classes, "use uniform or power_of_choice")

    def setup(self, view: FederationView) -> dict[str, Ids | Floats]:
        trainable = view.trainable
        clusters = np.full(len(view.sizes), -1, dtype=np.int64)
        clusters[trainable] = label_clusters(label_counts(view, self.privacy_epsilon)[trainable], self.metric)
        losses = np.full(len(view.sizes), np.nan)
        losses[trainable] = mean_losses(view, view.initial[None, :], trainable)[:, 0]
        latencies = view.round_seconds
        if latencies is None or not latencies.any():
            latencies = np.array([latency(view.rng("latency", i)) for i in range(len(view.sizes))])
        return {"clusters": clusters, "losses": losses, "latencies": latencies}

    def pick(self, draw: Draw) -> Ids:
        count = cohort_size(len(draw.candidates), self.fraction, self.minimum)
        losses, latencies = draw.memory["losses"][draw.candidates], draw.memory["latencies"][draw.candidates]
        _, cluster = np.unique(draw.memory["clusters"][draw.candidates], return_inverse=True)
        chances = scores(cluster, losses**self.loss_power, latencies, self.rho)
        # Sorted by cluster, then fastest first; the sort is stable and candidates are ascending.
        queue = np.lexsort((latencies, cluster))
        ends = np.cumsum(np.bincount(cluster))
        following = np.concatenate([[0], ends[:-1]])
        chosen = []
        for _ in range(count):
            left = following < ends
            weights = np.where(left, chances, 0.0)
            weights = weights if weights.sum() > 0 else left.astype(np.float64)
            c = int(draw.rng.choice(len(weights), p=weights / weights.sum()))
            chosen.append(queue[following[c]])
            following[c] += 1
        return draw.candidates[np.sort(np.array(chosen, dtype=np.int64))]

    def observe(self, memory: dict[str, Ids | Floats], update: Update) -> dict[str, Ids | Floats]:
        if update.losses is None or POOLED in update.ids:
            return memory
        losses = memory["losses"].copy()
        # A hospital that trains on groups of its rows sends a loss for each group.
        hospitals, entry = np.unique(update.ids, return_inverse=True)
        groups = None if update.problem is None else update.problem.groups
        rows = np.ones(len(entry)) if groups is None else groups.rows
        share = rows / np.bincount(entry, weights=rows)[entry]
        losses[hospitals] = np.bincount(entry, weights=share * update.losses)
        return {**memory, "losses": losses}


def label_clusters(counts: Floats, metric: Literal["hellinger", "euclidean"]) -> Ids:
    """Return the index of each hospital's cluster, ``[H]``, from the numbers ``counts [H, C]`` of rows of each class.

    Clusters are numbered in the order of their first hospitals.
    """
    from sklearn.cluster import OPTICS  # a second to import, and only this selection needs it

    if len(counts) < 2:
        return np.zeros(len(counts), dtype=np.int64)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-300)
    # The Hellinger distance is the Euclidean distance between these rows: no matrix of all pairs is needed.
    rows = np.sqrt(shares / 2.0) if metric == "hellinger" else shares
    cut = {"cluster_method": "xi"} if metric == "hellinger" else {"cluster_method": "dbscan", "eps": 0.25}
    with np.errstate(divide="ignore", invalid="ignore"):  # equal hospitals have reachability 0
        labels: Ids = OPTICS(min_samples=2, **cut).fit(rows).labels_.astype(np.int64)
    alone = np.flatnonzero(labels < 0)
    labels[alone] = labels.max() + 1 + np.arange(len(alone))
    return by_smallest_member(labels)


def latency(rng: np.random.Generator) -> float:
    """Sample how many seconds a hospital needs for a round."""
    compute = 10.0 * rng.uniform(*COMPUTE[rng.choice(len(ODDS), p=ODDS)])
    bandwidth = rng.uniform(*BANDWIDTH[rng.choice(len(ODDS), p=ODDS)])
    return float(compute + rng.uniform(*DELAY) + MEGABITS / bandwidth)


def scores(cluster: Ids, losses: Floats, latencies: Floats, rho: float) -> Floats:
    """Return the scores ``[K]`` of the K clusters, ``rho tau_c + (1 - rho) ACL_c / sum ACL``.

    ``cluster [H]`` has the index of each hospital's cluster. ``ACL_c`` is the mean loss of cluster c, and ``tau_c`` is
    ``1 - lat_c / max lat`` with the mean latency ``lat_c``.
    """
    sizes = np.bincount(cluster)
    loss = np.bincount(cluster, weights=losses) / sizes
    slowness = np.bincount(cluster, weights=latencies) / sizes
    slowest = slowness.max()
    speed = 1.0 - slowness / slowest if slowest > 0 else np.zeros(len(slowness))
    return np.asarray(rho * speed + (1.0 - rho) * loss / max(loss.sum(), 1e-300))
