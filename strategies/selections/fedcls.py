"""FedCLS: in each round, clusters of hospitals with similar classes take turns to add a hospital to the cohort.

C. Li, H. Wu: *FedCLS: A Federated Learning Client Selection Algorithm Based on Cluster Label Information*, IEEE
VTC2022-Fall. We could not read the paper: some details below are our choices.

Before training, each hospital sends, for each of the C classes, whether it has training rows of that class. Then the
first hospital without a cluster opens one. Each later hospital without a cluster joins if it differs from this first
hospital in at most τ C classes. This is repeated until every hospital has a cluster.

In each round, clusters take turns to add one of their hospitals, until the cohort is full. The order of the clusters,
and the order of the hospitals in a cluster, are sampled in each round.

Traffic, in addition to the traffic of training: each hospital sends C bits once, which are counted as C numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import (
    Context,
    Draw,
    FederationView,
    Floats,
    Ids,
    NonNegativeFloat,
    PositiveInt,
    Selection,
    ShareOfOne,
    Training,
    statistics_of,
)
from raysim.strategies.selections.sampling import cohort_size
from raysim.strategies.shared.label_counts import LabelCounts, check_classes


@dataclass(frozen=True)
class LabelPresence(LabelCounts):
    """Whether a hospital has training rows of each of the C classes: an array ``[1, C]`` of 0 and 1.

    Under differential privacy, the array has the noisy number of rows of each class instead.
    """

    name = "label_presence"

    def value(self, at: Context) -> Floats:
        counts = super().value(at)
        return counts if self.noisy else np.sign(counts)


@dataclass(frozen=True)
class FedCls(Selection):
    """FedCLS: client sampling from clusters of hospitals with similar classes, one hospital from each in turn.

    From round to round the selection stores ``clusters [N]``: each hospital's cluster; -1 if it has no training rows.
    """

    tau: NonNegativeFloat = 0.1
    """τ: the share of classes in which a hospital may differ from the first hospital of its cluster."""
    fraction: ShareOfOne = 0.1
    """The share of hospitals that take part in a round."""
    minimum: PositiveInt = 10
    """The smallest number of hospitals that take part in a round."""

    def check_training(self, training: Training) -> None:
        check_classes("selection.name: fedcls", training.classes, "use uniform or power_of_choice")

    def setup(self, view: FederationView) -> dict[str, Ids]:
        counts = statistics_of(view, LabelPresence(view.classes, view.noisy(LabelPresence.name)))[:, 0]
        presence = (counts >= 0.5).astype(np.float64)
        clusters = np.full(len(view.sizes), -1, dtype=np.int64)
        clusters[view.trainable] = presence_clusters(presence[view.trainable], self.tau)
        return {"clusters": clusters}

    def pick(self, draw: Draw) -> Ids:
        count = cohort_size(len(draw.candidates), self.fraction, self.minimum)
        order = draw.rng.permutation(draw.candidates)
        _, cluster = np.unique(draw.memory["clusters"][order], return_inverse=True)
        turn = draw.rng.permutation(cluster.max() + 1)
        taken = np.lexsort((turn[cluster], place_in_group(cluster)))
        return np.sort(order[taken[:count]])


def presence_clusters(presence: Floats, tau: float) -> Ids:
    """Return the index of each hospital's cluster, ``[N]``.

    ``presence [N, C]`` is 1 where a hospital has rows of a class, otherwise 0.
    """
    labels = np.full(len(presence), -1, dtype=np.int64)
    # The small addend undoes rounding of tau C if it should be whole.
    allowed = tau * presence.shape[1] + 1e-9
    for i in range(len(presence)):
        if labels[i] < 0:
            near = np.abs(presence - presence[i]).sum(axis=1) <= allowed
            labels[near & (labels < 0)] = labels.max() + 1
    return labels


def place_in_group(group: NDArray[Any]) -> Ids:
    """Return for each number in ``group [H]`` how many earlier numbers are equal to it, ``[H]``."""
    order = np.argsort(group, kind="stable")
    sizes = np.bincount(group)
    place = np.empty(len(group), dtype=np.int64)
    place[order] = np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return place
