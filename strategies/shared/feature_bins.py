"""Histograms of hospitals' features over common bins, without any row leaving a hospital.

First every hospital sends a few quantiles of each feature. Each quantile represents an equal share of the recorded
values, so together they estimate the distribution over all hospitals. The quantiles of this distribution become the
common edges. Then every hospital counts its values between these edges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import FederationView, Floats, HospitalRows
from raysim.strategies.questions import one_of_each
from raysim.strategies.shared.psi import bin_counts, bin_indices

FINE, CLIP = 64, 5.0
"""The number of bins for quantiles that are released with noise, and the outermost edge in standard deviations from the
mean."""


@dataclass(frozen=True)
class FeatureQuantiles:
    """The quantiles ``(k - 1/2) / bins``, k = 1 to ``bins``, of each of ``D`` features, and the number of its values.

    The answer is a flat ``[(bins + 1) D]``; NaN for the quantiles of a feature that was never recorded.
    """

    bins: int
    kind: ClassVar[str] = "feature_quantiles"

    def added(self, rows: HospitalRows) -> Floats:
        """Return each row's contribution to the sum: each value in one of ``FINE`` bins of equal width, or missing."""
        columns = rows.observed.shape[1]
        at = np.clip(np.floor((rows.X[:, :columns] / CLIP + 1.0) * (FINE / 2)), 0, FINE - 1).astype(np.int64)
        return one_of_each(np.where(rows.observed, at, FINE), FINE + 1).reshape(len(at), columns * (FINE + 1))

    def bounds(self, nobody: HospitalRows) -> tuple[float, float]:
        columns = nobody.observed.shape[1]
        return float(columns), math.sqrt(columns)

    def from_sums(self, sums: Floats, nobody: HospitalRows) -> Floats:
        """Compute quantiles with values spread evenly within their bin; negative noisy counts become 0."""
        columns = nobody.observed.shape[1]
        below = np.maximum.accumulate(np.cumsum(sums.reshape(columns, FINE + 1)[:, :FINE], axis=1), axis=1)
        below, edges = np.maximum(below, 0.0), CLIP * (2.0 * np.arange(FINE + 1) / FINE - 1.0)
        seen, shares = below[:, -1], (np.arange(self.bins) + 0.5) / self.bins
        quantiles = np.full((self.bins, columns), np.nan)
        for j in np.flatnonzero(seen > 0):
            quantiles[:, j] = np.interp(shares * seen[j], np.append(0.0, below[j]), edges)
        return np.concatenate([quantiles.ravel(), seen])

    def answer(self, rows: HospitalRows) -> Floats:
        n, columns = rows.observed.shape
        seen = rows.observed.sum(axis=0)
        quantiles = np.full((self.bins, columns), np.nan)
        if n:
            # Missing values are sorted last; positions are then counted among the recorded values.
            values = np.sort(np.where(rows.observed, rows.X[:, :columns].astype(np.float64), np.inf), axis=0)
            shares = (np.arange(self.bins) + 0.5) / self.bins
            at = shares[:, None] * np.maximum(seen - 1, 0)
            low = np.floor(at).astype(np.int64)
            high = np.minimum(low + 1, np.maximum(seen - 1, 0))
            below, above = np.take_along_axis(values, low, axis=0), np.take_along_axis(values, high, axis=0)
            recorded = np.broadcast_to(seen > 0, below.shape)
            quantiles[recorded] = below[recorded] + ((at - low)[recorded]) * (above[recorded] - below[recorded])
        return np.concatenate([quantiles.ravel(), seen])


@dataclass(frozen=True, eq=False)
class FeatureCounts:
    """The number of values of each feature between ``edges [D, Q]`` and of missing values: a flat ``[D (Q + 2)]``."""

    edges: Floats
    kind: ClassVar[str] = "feature_counts"

    @property
    def scalars(self) -> int:
        """The number of edges, which each hospital receives."""
        return self.edges.size

    def answer(self, rows: HospitalRows) -> Floats:
        index = bin_indices(rows.X, rows.observed, self.edges)
        home = np.zeros(len(index), dtype=np.int64)
        return bin_counts(index, home, 1, self.edges.shape[1] + 2).astype(np.float64).ravel()

    def added(self, rows: HospitalRows) -> Floats:
        index = bin_indices(rows.X, rows.observed, self.edges)
        bins = self.edges.shape[1] + 2
        return one_of_each(index, bins).reshape(len(index), len(self.edges) * bins)

    def bounds(self, nobody: HospitalRows) -> tuple[float, float]:
        """One value of each feature, or that it is missing."""
        return float(len(self.edges)), math.sqrt(len(self.edges))

    def from_sums(self, sums: Floats, nobody: HospitalRows) -> Floats:
        return np.maximum(sums, 0.0)


def ask_feature_counts(view: FederationView, bins: int) -> NDArray[np.float64]:
    """Return every hospital's histogram of each feature over common quantile bins and "missing",
    ``[N, D, bins + 1]``."""
    edges = common_edges(view.ask(FeatureQuantiles(bins)), bins)
    answers = np.stack(view.ask(FeatureCounts(edges)))
    return answers.reshape(len(answers), len(edges), bins + 1)


def common_edges(answers: Sequence[Floats], bins: int) -> Floats:
    """Return the quantiles ``k / bins``, k = 1 to ``bins - 1``, of all hospitals' values, ``[D, bins - 1]``.

    ``answers`` are the answers to :class:`FeatureQuantiles`. A feature without recorded values has edges at 0.
    """
    stacked = np.stack(answers).reshape(len(answers), bins + 1, -1)
    quantiles, seen = stacked[:, :bins], stacked[:, bins:]
    columns = stacked.shape[2]
    values = np.nan_to_num(quantiles).reshape(-1, columns)
    weights = np.broadcast_to(seen, quantiles.shape).reshape(-1, columns)
    edges = np.zeros((columns, bins - 1))
    for j in range(columns):
        order = np.argsort(values[:, j], kind="stable")
        weight = weights[order, j]
        ends = np.cumsum(weight)
        if ends[-1] > 0:
            # Each quantile is the middle of the values that it represents.
            edges[j] = np.interp(ends[-1] * np.arange(1, bins) / bins, ends - weight / 2, values[order, j])
    return edges
