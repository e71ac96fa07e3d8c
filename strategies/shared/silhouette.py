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
"""The largest difference between silhouettes that are treated as equal. Among equal silhouettes, the smaller number of
clusters is chosen."""

SAMPLE = 2000
"""The largest number of rows for the silhouettes of given labels: 32 MB of distances."""


def mean_silhouette(distances: Floats, labels: Ids) -> float:
    """Return the mean over points of ``(b - a) / max(a, b)``, from ``distances [N, N]`` and ``labels [N]`` 0, 1, ...

    ``a`` is a point's mean distance to the rest of its cluster, ``b`` the smallest mean distance to another cluster.
    The value is 0 for a point alone in its cluster, and for ``a = b = 0``. A single cluster, or N clusters, give -1.
    """
    from sklearn.metrics import silhouette_score  # a second to import, and only clustering needs it

    if labels.max() + 1 in (1, len(labels)):
        return -1.0
    return float(silhouette_score(distances, labels, metric="precomputed"))


def best_labels(rows: Floats, candidates: Sequence[Ids], rng: np.random.Generator) -> int:
    """Return the index of the ``candidates`` with the largest mean silhouette; ties go to the first.

    Each candidate has labels ``[N]`` of ``rows [N, D]``. The time grows with N^2. Above ``SAMPLE`` rows, silhouettes
    are therefore computed on a sample of this size from ``rng``.
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
    """Return labels ``[N]`` of k-means on ``rows [N, D]``, for the number of clusters with the largest mean silhouette.

    Numbers from 2 to N - 1 are tried; ``rng(k)`` seeds the k-means with k clusters. Fewer than three rows, or rows that
    are all alike, form one cluster. With ``allow_one`` the result is one cluster if no number of clusters has a
    silhouette above 0.

    Trying one number takes time proportional to N^2, and about N numbers are tried. Above ``search_sample`` rows, the
    number is therefore searched on a sample of this size from ``rng(0)``. All rows are then clustered with it.
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
