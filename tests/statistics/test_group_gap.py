"""Gaps between groups of patients: the floor as drawn directly, and who is a group."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from raysim.statistics.chance.drawn import Chance, centres, federations
from raysim.statistics.chance.group_gap import error_gap, group_difference, group_gap
from raysim.statistics.intervals import Interval, auroc_interval, difference_interval
from tests.statistics.federations import sums

M, N = np.array([12, 6, 3]), np.array([60, 40, 15])


def test_the_floor_is_what_equal_groups_show():
    rng = np.random.default_rng(0)
    gap = group_gap([0.8, 0.78, 0.7], M, N, 1.3, rng, draws=4000)
    events = np.tile(M, 4000)
    drawn = sums(rng, events, np.tile(N, 4000), 0.79, 1.3)
    gaps = np.ptp((drawn.first / 4 / events / np.tile(N, 4000)).reshape(4000, 3), axis=1)
    assert (gap.value, gap.groups) == (pytest.approx(0.1), 3)
    assert gap.floor == pytest.approx(gaps.mean(), rel=0.05)
    assert (gap.low, gap.high) == pytest.approx(tuple(np.quantile(gaps, [0.025, 0.975])), rel=0.12)
    assert gap.p == pytest.approx((gaps >= 0.1).mean(), abs=0.04)


def test_a_clear_gap_is_beyond_it():
    gap = group_gap([0.9, 0.6], [200, 200], [900, 900], 1.0, np.random.default_rng(1), draws=200)
    assert gap.p == 1 / 201
    assert gap.value > gap.high


def test_groups_without_both_classes_are_none():
    rng = np.random.default_rng(2)
    gap = group_gap([0.8, np.nan, 0.7, 0.1], [12, 3, 6, 0], [60, 9, 40, 5], 1.0, rng, draws=50)
    assert (gap.groups, gap.value) == (2, pytest.approx(0.1))
    one = group_gap([0.8, np.nan], [12, 0], [60, 9], 1.0, rng)
    assert one.groups == 1
    assert np.isnan(one[:5]).all()


def test_one_row_without_the_event_is_enough_for_a_group():
    gap = group_gap([0.75, 0.5, 0.25], [12, 6, 6], [60, 1, 0], 1.0, np.random.default_rng(2), draws=5)
    assert (gap.groups, gap.value) == (2, 0.25)


def test_groups_have_errors_where_they_have_rows_and_draws_may_be_shared():
    errors = np.linspace(0, 3, 20)
    gaps = [
        error_gap([1.0, np.nan, 2.0, 3.0], [3, 4, 2, 0], errors, rng, draws=20)
        for rng in (np.random.default_rng(3), Chance(lambda: np.random.default_rng(3)))
    ]
    assert (gaps[0].groups, gaps[0].value) == (2, 1.0)
    assert gaps[0] == gaps[1]


def test_two_groups_have_a_signed_difference():
    a, v, m, n = (0.8, 0.9), (0.001, 0.01), (60, 12), (200, 50)
    each = auroc_interval(a, v, m, n)
    first, second = (Interval(each.low[g], each.high[g]) for g in (0, 1))
    assert each.by_logit.tolist() == [True, False]
    assert group_difference(a, v, m, n) == difference_interval(0.8, first, 0.9, second)


def test_the_floor_of_errors_is_every_deal_of_them():
    """Four errors dealt to groups of one and two rows, the fourth to nobody: twelve gaps, worked by hand."""
    errors, n = np.array([0.0, 1.0, 3.0, 8.0]), [1, 2]
    deals = [abs(errors[a] - errors[[b, c]].mean()) for a, b, c in permutations(range(4), 3)]
    gap = error_gap([3.0, 0.5], n, errors, np.random.default_rng(3), draws=4000)
    assert (gap.value, gap.groups) == (2.5, 2)
    assert gap.floor == pytest.approx(np.mean(deals), rel=0.04)
    assert (gap.low, gap.high) == (min(deals), max(deals))
    assert gap.p == pytest.approx(np.mean(np.array(deals) >= 2.5), abs=0.03)
    assert 0.2 < gap.p < 0.9


def test_equal_groups_of_errors_are_seldom_called_unequal():
    """Of 200 tables with heavy tails at most as many as a 5 % test may call; a group with twice the errors is."""
    rng, n = np.random.default_rng(4), np.array([40, 25, 8])
    first, p = np.cumsum(n) - n, []
    for _ in range(200):
        errors = rng.lognormal(0, 1.2, 90)  # of 17 rows the group is not known
        mae = np.add.reduceat(errors[:73], first) / n
        p.append(error_gap(mae, n, errors, rng, draws=99).p)
    errors = np.abs(rng.standard_normal(90)) * np.repeat([1.0, 3.0, 1.0], [40, 25, 25])
    scaled = error_gap(np.add.reduceat(errors[:73], first) / n, n, errors, rng, draws=199)
    assert (np.array(p) <= 0.05).sum() <= 17
    assert scaled.p == 1 / 200


def test_groups_of_errors_without_rows_are_none():
    gap = error_gap([1.0, np.nan, 2.0], [3, 0, 2], np.arange(5.0), np.random.default_rng(5), draws=20)
    assert (gap.groups, gap.value) == (2, 1.0)
    for mae, n, errors in (([1.0, np.nan], [3, 0], 5), ([1.0, 2.0], [3, 3], 5)):
        assert np.isnan(error_gap(mae, n, np.arange(float(errors)), np.random.default_rng(5)).p)


def test_equal_groups_have_the_mean_auroc_of_all_by_their_pairs_over_their_rows():
    """Weights 20 x 20 / 40 and 60 x 30 / 90: the common AUROC is (10 x .55 + 20 x .85) / 30."""
    events, others = np.array([20, 60]), np.array([20, 30])
    gap = group_gap([0.55, 0.85], events, others, 1.0, np.random.default_rng(3), draws=200)
    middles = centres((10 * 0.55 + 20 * 0.85) / 30, [0.0])
    blocks = federations(events, others, middles, 1.0, [0.0], 200, np.random.default_rng(3))
    drawn = np.concatenate([np.ptp(block.observed[0], axis=1) for block in blocks])
    assert gap.value == pytest.approx(0.3)
    assert gap.floor == pytest.approx(drawn.mean(), rel=1e-12)
    assert (gap.low, gap.high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), rel=1e-12)
    assert gap.p == pytest.approx((1 + (drawn >= 0.3).sum()) / 201)
