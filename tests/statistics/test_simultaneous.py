"""Many differences: Holm's order by hand, and the largest t as it is drawn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t as student

from raysim.statistics.paired import paired
from raysim.statistics.simultaneous import adjusted


def differences(rng, hospitals, effects, seeds=1):
    a = rng.normal(0.8, 0.05, (seeds, hospitals))
    rows = rng.integers(20, 60, (seeds, hospitals))
    return [paired(a + effect + rng.normal(0, 0.02, a.shape), a, rows) for effect in effects]


def test_holm_rejects_exactly_where_an_interval_excludes_0():
    pairs = differences(np.random.default_rng(1), 8, [0.05, 0.02, 0.0, 0.025, 0.012])
    family = adjusted(pairs, np.random.default_rng(0))
    assert family.by == "Holm"
    order = np.argsort([pair.p for pair in pairs])
    rejecting, rejected = True, set()
    for rank, k in enumerate(order):
        rejecting = rejecting and pairs[k].p <= 0.05 / (5 - rank)
        if rejecting:
            rejected.add(int(k))
    assert 0 < len(rejected) < 5
    assert {k for k, interval in enumerate(family.intervals) if interval.shows} == rejected
    # Without an adjustment more would be shown; the first in order has Bonferroni's interval.
    assert {k for k, pair in enumerate(pairs) if pair.population().shows} > rejected
    assert family.intervals[order[0]] == pytest.approx(pairs[order[0]].population(0.01))
    # Once one is not rejected, all after it have its level.
    stopped = len(rejected)
    for k in order[stopped:]:
        assert family.intervals[k] == pytest.approx(pairs[k].population(0.05 / (5 - stopped)))


def test_one_difference_needs_no_adjustment():
    for hospitals in (6, 30):
        (pair,) = differences(np.random.default_rng(2), hospitals, [0.01])
        (interval,) = adjusted([pair], np.random.default_rng(0)).intervals
        low, high = pair.population()
        assert (interval.low, interval.high) == pytest.approx((low, high), rel=0.05)
        assert interval.low <= low + 1e-12
        assert interval.high >= high - 1e-12


def test_copies_of_a_difference_cost_nothing_and_independent_ones_do():
    rng = np.random.default_rng(3)
    (pair,) = differences(rng, 200, [0.0])
    reach = student.ppf(0.975, pair.df)
    copies = adjusted([pair] * 10, np.random.default_rng(0), draws=20_000)
    assert copies.by == "max-t"
    t = (copies.intervals[0].high - pair.difference) / np.sqrt(pair.variance)
    assert t == pytest.approx(reach, rel=0.02)
    rng = np.random.default_rng(4)
    rows = np.full((1, 200), 30)
    apart = [paired(rng.normal(0, 1, (1, 200)), np.zeros((1, 200)), rows) for _ in range(10)]
    interval = adjusted(apart, np.random.default_rng(0), draws=20_000).intervals[3]
    t = (interval.high - apart[3].difference) / np.sqrt(apart[3].variance)
    assert t == pytest.approx(student.ppf(0.975 ** (1 / 10), 199), rel=0.03)  # of ten independent ones


def test_equal_models_and_what_has_no_variance_take_no_part():
    rng = np.random.default_rng(5)
    real = differences(rng, 6, [0.03, 0.0])
    same = paired(np.ones((1, 6)), np.ones((1, 6)), np.ones((1, 6)))
    lone = paired([[0.5]], [[0.4]], [[9]])
    family = adjusted([same, real[0], lone, real[1]], rng)
    assert family.intervals[0] == (0, 0)
    assert np.isnan(family.intervals[2]).all()
    assert [family.intervals[k] for k in (1, 3)] == adjusted(real, rng).intervals
    assert adjusted([same, lone], rng).intervals[0] == (0, 0)
