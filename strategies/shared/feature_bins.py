"""Histograms of hospitals' features over common bins. No row leaves a hospital.

First every hospital sends a few quantiles of each feature, from which the server estimates the distribution over all
hospitals. The quantiles of this distribution become the edges between bins. Then every hospital counts its values
between these edges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raysim.strategies.base import Context, Counts, FederationView, Floats, Ids, Rows, Send, Statistic, statistics_of
from raysim.strategies.shared.psi import bin_indices

FINE, CLIP = 64, 5.0
"""Noisy quantiles are estimated from counts in ``FINE`` bins of equal width, from ``-CLIP`` to ``CLIP`` standard
deviations."""


@dataclass(frozen=True)
class FeatureQuantiles(Statistic):
    """Quantiles of a hospital's D features, and how many values of each were recorded, ``[bins + 1, D]``.

    The first ``bins`` rows are the quantiles of order ``(k - 1/2) / bins`` for k = 1 to ``bins`` (NaN for a feature
    that was never recorded); the last row has the numbers of recorded values.
    """

    columns: int
    bins: int
    name = "feature_quantiles"

    @property
    def sent(self) -> Send:
        return Send((self.bins + 1, self.columns), self.name, "each", undefined=True)

    def value(self, at: Context) -> Floats:
        return at.cache(self.name, lambda: self._exact(at.rows), str(self.bins).encode())

    def _exact(self, rows: Rows) -> Floats:
        n, columns = rows.observed.shape
        recorded_rows = rows.observed.sum(axis=0)
        quantiles = np.full((self.bins, columns), np.nan)
        if n:
            # Missing values are sorted last; positions are then counted among the recorded values.
            values = np.sort(np.where(rows.observed, rows.X[:, :columns].astype(np.float64), np.inf), axis=0)
            shares = (np.arange(self.bins) + 0.5) / self.bins
            at = shares[:, None] * np.maximum(recorded_rows - 1, 0)
            low = np.floor(at).astype(np.int64)
            high = np.minimum(low + 1, np.maximum(recorded_rows - 1, 0))
            below, above = np.take_along_axis(values, low, axis=0), np.take_along_axis(values, high, axis=0)
            recorded = np.broadcast_to(recorded_rows > 0, below.shape)
            quantiles[recorded] = below[recorded] + ((at - low)[recorded]) * (above[recorded] - below[recorded])
        return np.concatenate([quantiles, recorded_rows[None, :]])


@dataclass(frozen=True)
class FineCounts(Counts):
    """Counts that a hospital sends with noise, in place of :class:`FeatureQuantiles`, ``[D, FINE + 1]``.

    Each of the D rows has the numbers of a feature's values in ``FINE`` bins of equal width, then the number of missing
    values.
    """

    columns: int
    name = FeatureQuantiles.name
    noisy = True

    @property
    def table(self) -> tuple[int, int]:
        return self.columns, FINE + 1

    def places(self, at: Context) -> Ids:
        values = at.rows.X[:, : self.columns]
        places = np.clip(np.floor((values / CLIP + 1.0) * (FINE / 2)), 0, FINE - 1).astype(np.int64)
        return np.where(at.rows.observed, places, FINE)


def quantiles_of(counts: Floats, bins: int) -> Floats:
    """Estimate the array of :class:`FeatureQuantiles` from noisy ``counts [D, FINE + 1]`` of a hospital.

    Values are assumed to be spread evenly within their bin. Where cumulative counts decrease because of the noise, they
    are set to the largest earlier one.
    """
    below = np.maximum.accumulate(np.cumsum(counts[:, :FINE], axis=1), axis=1)
    below, edges = np.maximum(below, 0.0), CLIP * (2.0 * np.arange(FINE + 1) / FINE - 1.0)
    recorded_rows, shares = below[:, -1], (np.arange(bins) + 0.5) / bins
    quantiles = np.full((bins, len(counts)), np.nan)
    for j in np.flatnonzero(recorded_rows > 0):
        quantiles[:, j] = np.interp(shares * recorded_rows[j], np.append(0.0, below[j]), edges)
    return np.concatenate([quantiles, recorded_rows[None, :]])


@dataclass(frozen=True)
class FeatureCounts(Counts):
    """The number of a hospital's values in each bin of each of D features, ``[D, bins]``.

    The received ``edges [D, bins - 2]`` separate the first ``bins - 1`` bins of each feature. The last bin counts
    missing values.
    """

    columns: int
    bins: int
    noisy: bool = False
    name = "feature_counts"

    @property
    def table(self) -> tuple[int, int]:
        return self.columns, self.bins

    def places(self, at: Context) -> Ids:
        return bin_indices(at.rows.X, at.rows.observed, at.received["edges"])


def feature_counts(view: FederationView, bins: int) -> Floats:
    """Return histograms ``[N, D, bins + 1]`` of each of D features at each of N hospitals, over common bins.

    Summed over hospitals, the first ``bins`` bins of a feature have about equally many values. The last bin counts
    missing values.
    """
    counts = FeatureCounts(view.columns, bins + 1, view.noisy(FeatureCounts.name))
    return np.maximum(statistics_of(view, counts, edges=feature_edges(view, bins)), 0.0)


def feature_edges(view: FederationView, bins: int) -> Floats:
    """Return the edges ``[D, bins - 1]`` between the common bins of each of D features."""
    if view.noisy(FeatureQuantiles.name):
        quantiles = np.stack([quantiles_of(counts, bins) for counts in statistics_of(view, FineCounts(view.columns))])
    else:
        quantiles = statistics_of(view, FeatureQuantiles(view.columns, bins))
    return common_edges(quantiles, bins)


def common_edges(stacked: Floats, bins: int) -> Floats:
    """Estimate the quantiles ``k / bins`` (k = 1 to ``bins - 1``) of D features over all hospitals, ``[D, bins - 1]``.

    ``stacked [N, bins + 1, D]`` has the :class:`FeatureQuantiles` of each hospital. The result is 0 for a feature that
    no hospital recorded.
    """
    quantiles, recorded_rows = stacked[:, :bins], stacked[:, bins:]
    columns = stacked.shape[2]
    values = np.nan_to_num(quantiles).reshape(-1, columns)
    weights = np.broadcast_to(recorded_rows, quantiles.shape).reshape(-1, columns)
    edges = np.zeros((columns, bins - 1))
    for j in range(columns):
        order = np.argsort(values[:, j], kind="stable")
        weight = weights[order, j]
        ends = np.cumsum(weight)
        if ends[-1] > 0:
            # Each quantile is the middle of the values that it represents.
            edges[j] = np.interp(ends[-1] * np.arange(1, bins) / bins, ends - weight / 2, values[order, j])
    return edges
