"""The choice of the number of clusters: k-means runs for every number, and the largest mean silhouette decides.

P. J. Rousseeuw: *Silhouettes: a graphical aid to the interpretation and validation of cluster analysis*, Journal of
Computational and Applied Mathematics 20, 1987. The search is step 3 of Clust-PSI-PFL (Jimenez-Gutierrez et al., 2025).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from raysim.strategies.base import Floats, Ids
from raysim.strategies.shared.clustering import by_smallest_member, kmeans

TIE = 1e-12
"""Silhouettes that differ by at most this number are treated as equal."""

SAMPLE = 2000
"""The largest number of points for which :func:`best_labels` computes silhouettes (32 MB of distances). If there are
more points, it uses a random sample of this size."""


def mean_silhouette(distances: Floats, labels: Ids) -> float:
    """Return the mean silhouette ``(b - a) / max(a, b)`` of N points.

    ``distances [N, N]`` are the distances between points, and ``labels [N]`` the points' clusters, numbered from 0.
    ``a`` is a point's mean distance to the other points of its cluster, and ``b`` the smallest mean distance to another
    cluster. A point that is alone in its cluster, or has ``a = b = 0``, counts 0. The result is -1 for a single cluster
    and for N clusters.
    """
    from sklearn.metrics import silhouette_score  # a second to import, and only clustering needs it

    if labels.max() + 1 in (1, len(labels)):
        return -1.0
    return float(silhouette_score(distances, labels, metric="precomputed"))


def best_labels(rows: Floats, candidates: Sequence[Ids], rng: np.random.Generator) -> int:
    """Return the index of the clustering in ``candidates`` with the largest mean silhouette.

    If several are equally good, the first is chosen. Each candidate has the cluster labels ``[N]`` of the points
    ``rows [N, D]``. If there are more than ``SAMPLE`` points, a random sample drawn with ``rng`` is used.
    """
    if len(candidates) == 1:
        return 0
    from scipy.spatial.distance import cdist  # a third of a second to import, and only clustering needs it

    n = len(rows)
    sample = np.arange(n) if n <= SAMPLE else np.sort(rng.permutation(n)[:SAMPLE])
    distances = cdist(rows[sample], rows[sample])
    return _first_best([mean_silhouette(distances, by_smallest_member(labels[sample])) for labels in candidates])


def best_clusters(
    rows: Floats, rng: Callable[[int], np.random.Generator], *, allow_one: bool, search_sample: int
) -> Ids:
    """Return the labels ``[N]`` of points ``rows [N, D]`` by k-means with the best number of clusters from 2 to N - 1.

    ``rng(k)`` seeds k-means with k clusters. Fewer than three points, or points that are all equal, form one cluster.
    With ``allow_one``, all points form one cluster if no number of clusters has a mean silhouette above 0.

    If there are more than ``search_sample`` points, the number of clusters is chosen on a random sample of this size,
    drawn with ``rng(0)``.
    """
    n = len(rows)
    if n <= search_sample:
        return _search(rows, rng, allow_one)
    sample = np.sort(rng(0).permutation(n)[:search_sample])
    clusters = int(_search(rows[sample], rng, allow_one).max()) + 1
    return kmeans(rows, clusters, rng(clusters))


def _search(rows: Floats, rng: Callable[[int], np.random.Generator], allow_one: bool) -> Ids:
    n, distinct = len(rows), len(np.unique(rows, axis=0))
    one = np.zeros(n, dtype=np.int64)
    if n < 3 or distinct < 2:
        return one
    from scipy.spatial.distance import cdist  # a third of a second to import, and only clustering needs it

    distances = cdist(rows, rows)
    # More clusters than distinct rows would repeat the clustering into the distinct rows.
    candidates = [kmeans(rows, k, rng(k)) for k in range(2, min(n - 1, distinct) + 1)]
    scores = [mean_silhouette(distances, labels) for labels in candidates]
    if allow_one:
        candidates, scores = [one, *candidates], [0.0, *scores]
    return candidates[_first_best(scores)]


def _first_best(scores: Sequence[float]) -> int:
    best = max(scores) - TIE
    return next(i for i, score in enumerate(scores) if score >= best)
