"""The Pareto set, crowding, hypervolume and the knee, against brute force and values worked by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysim.tune import pareto

MIXED = (True, True, False, False)


def brute_front(values: np.ndarray, larger: tuple[bool, ...]) -> list[bool]:
    def better(a: float, b: float, up: bool) -> bool:
        return a > b if up else a < b

    def dominates(a: np.ndarray, b: np.ndarray) -> bool:
        if np.isnan(a).any() or np.isnan(b).any():
            return False
        pairs = list(zip(a, b, larger, strict=True))
        return not any(better(y, x, up) for x, y, up in pairs) and any(better(x, y, up) for x, y, up in pairs)

    return [not np.isnan(a).any() and not any(dominates(b, a) for b in values) for a in values]


def brute_volume(points: np.ndarray) -> float:
    """Of boxes between 0 and integer points: count the unit cells that some box holds."""
    top = points.max(axis=0).astype(int)
    cells = itertools.product(*(range(n) for n in top))
    return float(sum(any((np.array(cell) < p).all() for p in points) for cell in cells))


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_the_front_is_what_no_trial_dominates(seed, n, d):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 4, size=(n, d)).astype(float)
    values[rng.random((n, d)) < 0.1] = np.nan
    assert pareto.front(values, MIXED[:d]).tolist() == brute_front(values, MIXED[:d])


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 4))
@settings(max_examples=80, deadline=None)
def test_hypervolume_counts_the_cells_that_some_trial_dominates(seed, n, d):
    points = np.random.default_rng(seed).integers(1, 6, size=(n, d)).astype(float)
    assert pareto.hypervolume(points, [True] * d, [0.0] * d) == pytest.approx(brute_volume(points))
    # Turning an objective round and shifting all by a reference changes nothing.
    larger = MIXED[:d]
    turned = np.where(larger, points, -points) + 7
    assert pareto.hypervolume(turned, larger, [7.0] * d) == pytest.approx(brute_volume(points))


def test_hypervolume_of_known_fronts():
    assert pareto.hypervolume([[3, 1], [1, 3], [2, 2]], [True, True], [0, 0]) == 6.0
    assert pareto.hypervolume([[0.9, 0.1]], [True, False], [0.5, 0.3]) == pytest.approx(0.08)
    assert pareto.hypervolume([[0.4, 0.1]], [True, False], [0.5, 0.3]) == 0.0
    assert pareto.hypervolume(np.empty((0, 2)), [True, True], [0, 0]) == 0.0
    assert pareto.hypervolume([[1, 1], [math.nan, 9]], [True, True], [0, 0]) == 1.0
    # The corners of the simplex x + y + z = 2 on a grid of step 1, plus one inside: worked by hand.
    assert pareto.hypervolume([[2, 1, 1], [1, 2, 1], [1, 1, 2]], [True] * 3, [0, 0, 0]) == 4.0
    # In four dimensions, 1 x 1 x 1 x 4 and 2 x 2 x 2 x 3 share 1 x 1 x 1 x 3; then one inside that adds nothing.
    assert pareto.hypervolume([[1, 1, 1, 4], [2, 2, 2, 3]], [True] * 4, [0] * 4) == 25.0
    assert pareto.hypervolume([[1, 1, 1, 4], [2, 2, 2, 3], [2, 1, 2, 2]], [True] * 4, [0] * 4) == 25.0
    assert pareto.hypervolume([[1, 1, 1, 4], [2, 2, 2, 3], [3, 1, 2, 1]], [True] * 4, [0] * 4) == 27.0


def test_an_undefined_objective_never_dominates():
    assert pareto.front([[math.nan, 9], [1, 1], [0, 0]], [True, True]).tolist() == [False, True, False]
    assert pareto.knee([[math.nan, 1.0]], [True, True]) is None
    assert pareto.front(np.empty((0, 2)), [True, True]).tolist() == []


def test_crowding_is_the_gap_between_neighbours():
    distances = pareto.crowding([[0, 4], [1, 3], [3, 1], [4, 0]])
    assert distances.tolist() == [math.inf, 0.75 + 0.75, 0.75 + 0.75, math.inf]
    assert pareto.crowding([[1, 5], [1, 5]]).tolist() == [0.0, 0.0]
    assert pareto.crowding(np.empty((0, 3))).tolist() == []


def test_the_knee_is_nearest_to_the_ideal_and_its_costs_are_said():
    values = [[0.90, 0.30], [0.88, 0.12], [0.80, 0.10], [0.70, 0.50]]
    knee = pareto.knee(values, [True, False])
    assert knee is not None
    assert knee.index == 1
    auroc, bias = knee.costs
    assert (auroc.best, bias.best) == (0, 2)
    assert (auroc.gap, bias.gap) == (pytest.approx(0.02), pytest.approx(0.02))
    assert (auroc.share, bias.share) == (pytest.approx(0.2), pytest.approx(0.1))
    assert knee.distance == pytest.approx(math.hypot(0.2, 0.1))


def test_a_single_trial_is_its_own_knee():
    knee = pareto.knee([[0.5, 0.5]], [True, False])
    assert knee is not None
    assert (knee.index, knee.distance, knee.costs[0].gap) == (0, 0.0, 0.0)
