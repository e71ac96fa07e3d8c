"""Many differences: Holm's order by hand, and which strategies intervals leave."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from raysim.statistics.differences.paired import paired
from raysim.statistics.differences.simultaneous import adjusted, not_dominated


def differences(rng, hospitals, effects, seeds=1):
    a = rng.normal(0.8, 0.05, (seeds, hospitals))
    rows = rng.integers(20, 60, (seeds, hospitals))
    return [paired(a + effect + rng.normal(0, 0.02, a.shape), a, rows) for effect in effects]


def test_holm_rejects_exactly_where_an_interval_excludes_0():
    pairs = differences(np.random.default_rng(1), 8, [0.05, 0.02, 0.0, 0.025, 0.012])
    intervals = adjusted(pairs)
    order = np.argsort([pair.p for pair in pairs])
    rejecting, rejected = True, set()
    for rank, k in enumerate(order):
        rejecting = rejecting and pairs[k].p <= 0.05 / (5 - rank)
        if rejecting:
            rejected.add(int(k))
    assert 0 < len(rejected) < 5
    assert {k for k, interval in enumerate(intervals) if interval.shows} == rejected
    # Without an adjustment more would be shown; the first in order has Bonferroni's interval.
    assert {k for k, pair in enumerate(pairs) if pair.population().shows} > rejected
    assert intervals[order[0]] == pairs[order[0]].population(0.05 / 5)
    # Once one is not rejected, all after it have its level.
    stopped = len(rejected)
    for k in order[stopped:]:
        assert intervals[k] == pairs[k].population(0.05 / (5 - stopped))


def test_a_p_value_at_its_level_is_rejected():
    """Of two: the first against 1 in 40, the second, which follows a rejection, against 1 in 20."""
    pairs: list[Any] = [SimpleNamespace(variance=1.0, p=p, population=lambda level=0.05: level) for p in (0.03, 0.025)]
    assert adjusted(pairs) == [0.05, 0.025]
    pairs[1].p = 0.026
    assert adjusted(pairs) == [0.025, 0.025]


def test_one_difference_needs_no_adjustment():
    (pair,) = differences(np.random.default_rng(2), 6, [0.01])
    assert adjusted([pair]) == [pair.population()]


def test_equal_models_and_what_has_no_variance_take_no_part():
    real = differences(np.random.default_rng(5), 6, [0.03, 0.0])
    same = paired(np.ones((1, 6)), np.ones((1, 6)), np.ones((1, 6)))
    lone = paired([[0.5]], [[0.4]], [[9]])
    intervals = adjusted([same, real[0], lone, real[1]])
    assert intervals[0] == (0, 0)
    assert np.isnan(intervals[2]).all()
    assert [intervals[1], intervals[3]] == adjusted(real)
    assert adjusted([same]) == [(0, 0)]
    assert adjusted([]) == []


NAN = np.nan


def test_who_is_not_dominated():
    better = np.zeros((4, 4, 2), dtype=bool)
    better[0, 1, 0] = True  # the first is better than the second on one objective, and never worse
    better[2, 3, 0] = better[3, 2, 1] = True  # each of these is better on one
    assert not_dominated(better).tolist() == [True, False, True, True]
