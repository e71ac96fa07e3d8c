"""Which smoothing of PSI clusters hospitals best, when all see the same label counts?

    python -m benchmarks.psi_smoothing [--draws 6] [--searched 1]

Every hospital draws its label shares from a Dirichlet distribution, and from them two sets of counts. Hospitals are
clustered by the first as Clust-PSI-PFL does, with fixed numbers of clusters and, in the first of the draws (98 k-means
each), with the number that the silhouette chooses. An alpha of inf is hospitals that are alike. The second set says how
good the clusters are: the mean negative log likelihood of a label under the pooled shares of its hospital's cluster,
taken from the first set (nats; less is better, and no smoothing has more information than another), with its standard
error over draws. The figures chose the default of ``clust_psi``'s ``epsilon``; docs/heterogeneity.md has the table.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import Floats, Ids
from raysim.strategies.shared.clustering import kmeans
from raysim.strategies.shared.psi import Smoothing, psi_rows, psi_terms
from raysim.strategies.shared.signatures import standardise
from raysim.strategies.shared.silhouette import best_clusters

SMOOTHINGS: tuple[Smoothing, ...] = (1e-6, 1e-4, 1e-3, 0.01, 0.05, 0.1, "counts")
FIXED = (2, 5, 10, 20)
# Hospitals, classes, alpha, median rows of a hospital.
CASES = (
    (100, 10, 0.05, 500),
    (100, 10, 0.09, 500),
    (100, 10, 0.09, 100),
    (100, 10, 0.3, 500),
    (100, 10, 1.0, 500),
    (100, 10, np.inf, 500),
    (100, 2, 0.09, 200),
    (100, 2, 0.3, 200),
    (208, 2, 2.0, 50),
)


def drawn(hospitals: int, classes: int, alpha: float, rows: int, rng: np.random.Generator) -> tuple[Ids, Ids]:
    """Two sets of label counts ``[H, C]`` from the same shares; sizes are lognormal around ``rows``."""
    sizes = np.maximum(20, rows * rng.lognormal(0.0, 0.6, hospitals)).astype(int)
    alike = np.full((hospitals, classes), 1 / classes)
    shares = rng.dirichlet(np.full(classes, alpha), hospitals) if np.isfinite(alpha) else alike
    first, second = (np.array([rng.multinomial(n, p) for n, p in zip(sizes, shares, strict=True)]) for _ in range(2))
    return first, second


def loss(first: NDArray[np.int64], second: NDArray[np.int64], labels: Ids) -> float:
    """Nats a label of ``second`` under its cluster's shares in ``first``, half a row added to every class."""
    total = 0.0
    for label in np.unique(labels):
        counts = first[labels == label].sum(axis=0) + 0.5
        total -= float(second[labels == label].sum(axis=0) @ np.log(counts / counts.sum()))
    return total / float(second.sum())


def main() -> None:
    """Print a row for each case and smoothing."""
    from sklearn.metrics import silhouette_score

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--searched", type=int, default=1, help="draws in which the silhouette chooses as well")
    options = parser.parse_args()
    fixed = "".join(f"{f'loss at {number}':>16}" for number in FIXED)
    print(
        f"{'hospitals':>9}{'classes':>8}{'alpha':>7}{'rows':>6}{'epsilon':>9}{fixed}"
        f"{'clusters':>10}{'silhouette':>12}{'loss':>8}"
    )
    for hospitals, classes, alpha, rows in CASES:
        for smoothing in SMOOTHINGS:
            losses, searched = [], []
            for draw in range(options.draws):
                first, second = drawn(hospitals, classes, alpha, rows, np.random.default_rng(draw))
                columns: Floats = np.round(standardise(psi_rows(psi_terms(first, epsilon=smoothing))), 10)
                others = [kmeans(columns, number, np.random.default_rng(number)) for number in FIXED]
                losses.append([loss(first, second, each) for each in others])
                if draw < options.searched:
                    labels = best_clusters(
                        columns,
                        lambda number, draw=draw: np.random.default_rng((draw, number)),
                        allow_one=False,
                        search_sample=300,
                    )
                    silhouette = silhouette_score(columns, labels)
                    searched.append([labels.max() + 1, silhouette, loss(first, second, labels)])
            means, errors = np.mean(losses, axis=0), np.std(losses, axis=0) / max(options.draws - 1, 1) ** 0.5
            clusters, silhouette, chosen = np.mean(searched, axis=0) if searched else [np.nan] * 3
            print(
                f"{hospitals:9}{classes:8}{alpha:7}{rows:6}{smoothing!s:>9}"
                + "".join(f"{f'{m:.3f} ({e:.3f})':>16}" for m, e in zip(means, errors, strict=True))
                + f"{clusters:10.1f}{silhouette:12.2f}{chosen:8.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
