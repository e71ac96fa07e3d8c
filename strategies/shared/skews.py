"""The properties by which Clust-PSI-PFL compares hospitals: distributions of labels and features, and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import Floats, Ids, Newcomers
from raysim.strategies.shared.psi import (
    Smoothing,
    bin_counts,
    bin_indices,
    feature_terms,
    psi_rows,
    psi_terms,
    size_terms,
)
from raysim.strategies.shared.signatures import nearest_cluster, standardise

Aspect = Literal["labels", "attributes", "sizes"]
ASPECTS: tuple[Aspect, ...] = ("labels", "attributes", "sizes")


@dataclass(frozen=True, eq=False)
class Skews:
    """The counts of ``h`` hospitals. Counts that are not needed have no columns."""

    labels: Floats
    """The number of rows of each class, ``[h, C]``."""
    features: Floats
    """The number of values in each bin of each feature, ``[h, D, B]``."""
    sizes: Ids
    """The number of rows, ``[h]``."""

    def blocks(self, aspects: Sequence[Aspect], epsilon: Smoothing, among: Skews) -> list[Floats]:
        """Return the PSI of each aspect, ``[h, D']``, against the distribution over the hospitals ``among``."""
        made = {
            "labels": lambda: psi_rows(psi_terms(self.labels, among.labels.sum(axis=0), epsilon)),
            "attributes": lambda: feature_terms(self.features, epsilon, among.features.sum(axis=0)),
            "sizes": lambda: size_terms(self.sizes, among.sizes.mean())[:, None],
        }
        return [made[aspect]() for aspect in ASPECTS if aspect in aspects]


def comparable(blocks: Sequence[Floats], among: Sequence[Floats]) -> Floats:
    """Return ``blocks``, each ``[m, D_b]``, concatenated to ``[m, D']`` and standardised by the blocks of ``among``.

    All blocks have the same weight, however many columns each has.
    """
    scaled = standardise(np.concatenate(blocks, axis=1), np.concatenate(among, axis=1))
    if len(among) > 1:
        scaled = scaled * np.concatenate([np.full(block.shape[1], block.shape[1] ** -0.5) for block in among])
    return scaled


@dataclass(frozen=True, eq=False)
class NearestSkew(Newcomers):
    """The rule for a hospital that did not take part: it joins the cluster with the nearest mean of the compared
    values.

    The hospital's labels are compared on its labelled rows, and left out if it has none. Features and size are compared
    on all its rows.
    """

    participants: Skews
    """The counts of the hospitals that were clustered."""
    cluster: Ids
    """The model row of the cluster of each of these hospitals, ``[h]``."""
    by: tuple[Aspect, ...]
    epsilon: Smoothing
    classes: int
    edges: Floats | None
    """The common edges of the features' bins, ``[D, B - 2]``; None if features are not compared."""

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
