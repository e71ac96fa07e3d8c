"""The synthetic sets of CS-RCFL: few hospitals in groups with one linear law each; patients differ between hospitals.

X. Konti et al., *CS-RCFL*, numerical experiments. Hospital ``i`` has rows ``x ~ N(μ_i, Σ_i)`` and the weights of its
group ``g``, ``w_g ~ N(0, I)``. Regression: ``y = w.x + N(0, 25)``; classification: ``y = [w.x > 0]``, without noise, so
the classes are separable.

The paper does not state how means and covariances are sampled. Here ``μ_i = 0.5 N(0, I)``, and ``Σ_i`` is ``B B' / F``
with ``B`` standard normal (``wishart``), or ``I`` (``identity``). The choice decides the result in the paper's figure,
see ``docs/coalitions.md``: a Wishart matrix with as many degrees of freedom as dimensions is nearly singular. In some
directions a hospital's patients hardly differ, so its model learns nothing about them, while patients of other
hospitals do differ there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats

Rows = tuple[Floats, Floats]
"""``X [n, F]`` and ``y [n]``: real in regression, 0 or 1 in classification."""

Covariance = Literal["wishart", "identity"]
SIZES = {"regression": (50, 150), "classification": (100, 200)}
NOISE = 5.0


@dataclass(frozen=True, eq=False)
class CoalitionSets:
    """The sets of ``N`` hospitals in ``G`` groups.

    - ``train [N]``: each hospital's training set; ``tests [T][N]``: its ``T`` test sets.
    - ``groups [N]``: the true group of each hospital.
    - ``weights [G, F]``: the weights of the linear law of each group.
    """

    train: tuple[Rows, ...]
    tests: tuple[tuple[Rows, ...], ...]
    groups: NDArray[np.int64]
    weights: Floats


def coalition_sets(
    rng: np.random.Generator,
    task: Literal["regression", "classification"],
    *,
    hospitals: int = 10,
    groups: int = 3,
    features: int = 50,
    tests: int = 10,
    test_rows: int = 100,
    covariance: Covariance = "wishart",
) -> CoalitionSets:
    """Sample the data sets of ``hospitals`` hospitals in ``groups`` groups, each of at least one hospital.

    A training set has 50 to 150 rows in regression and 100 to 200 in classification, uniformly. Raises ``ValueError``
    where there are more groups than hospitals.
    """
    if not 1 <= groups <= hospitals:
        raise ValueError(f"groups: {groups} is not between 1 and the {hospitals} hospitals")
    low, high = SIZES[task]
    sizes = rng.integers(low, high + 1, hospitals)
    weights = rng.standard_normal((groups, features))
    # Every group gets one hospital; the remaining hospitals get a random group; then the groups are shuffled.
    group_of = rng.permutation(np.concatenate([np.arange(groups), rng.integers(0, groups, hospitals - groups)]))
    means = 0.5 * rng.standard_normal((hospitals, features))
    factors = rng.standard_normal((hospitals, features, features)) / np.sqrt(features)

    def draw(i: int, n: int) -> Rows:
        X = rng.standard_normal((n, features))
        X = means[i] + (X @ factors[i].T if covariance == "wishart" else X)
        scores = X @ weights[group_of[i]]
        if task == "regression":
            return X, scores + NOISE * rng.standard_normal(n)
        return X, (scores > 0).astype(np.float64)

    train = tuple(draw(i, int(sizes[i])) for i in range(hospitals))
    repeated = tuple(tuple(draw(i, test_rows) for i in range(hospitals)) for _ in range(tests))
    return CoalitionSets(train, repeated, group_of, weights)
