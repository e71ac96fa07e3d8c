"""Intervals of single figures: worked numbers, limits, and what more rows do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri
from scipy.stats import binom

from raysim.metrics.measures import hanley_mcneil
from raysim.statistics.discrimination.auroc import delong, placements
from raysim.statistics.intervals import (
    auroc_interval,
    clopper_pearson,
    few_rows_interval,
    logit_interval,
    observed_over_expected,
    score_interval,
    share_interval,
    wilson,
)

SHAPES = [
    (1, 1, 16),
    (0, 1, 16),
    (0.5, 1, 16),
    (0.75, 1, 16),
    (1, 3, 30),
    (0.8, 3, 30),
    (0.3, 3, 20),
    (1, 10, 100),
    (0.8, 10, 100),
    (0.8, 50, 500),
    (0.9, 5, 7),
]
HANLEY_MCNEIL = [
    (0.430358, 1),
    (0, 0.617606),
    (0.170775, 0.906605),
    (0.287496, 0.974387),
    (0.645, 1),
    (0.460808, 0.959391),
    (0.128582, 0.660716),
    (0.845521, 1),
    (0.606318, 0.918680),
    (0.717153, 0.865324),
    (0.555733, 0.983872),
]

aurocs = st.floats(0, 1).map(lambda a: round(a, 6))
counts = st.integers(1, 400)


def test_the_worked_variance():
    assert hanley_mcneil(0.9, 5, 7) == pytest.approx(0.0108147642, abs=6e-11)


def test_worked_score_intervals():
    a, m, n = np.array(SHAPES).T
    limits = np.transpose(score_interval(a, m, n))
    assert limits == pytest.approx(np.array(HANLEY_MCNEIL), abs=6e-7)
    at_an_end = np.isin(a, (0, 1))
    assert ((limits == a[:, None]).any(axis=1) == at_an_end).all()  # exactly 0 or 1, and only there


def test_worked_logit_interval():
    assert logit_interval(0.9, 0.0082312925) == pytest.approx((0.555135, 0.984828), abs=6e-7)


@given(aurocs, aurocs, counts, counts)
def test_score_limits_hold_the_figure_ascend_with_it_and_narrow_with_rows(a, b, m, n):
    a, b = min(a, b), max(a, b)
    low, high = score_interval([a, b], m, n)
    assert (low <= [a, b]).all()
    assert (high >= [a, b]).all()
    assert low[0] <= low[1] + 1e-12
    assert high[0] <= high[1] + 1e-12
    wide, narrow = (score_interval(a, m * k, n * k) for k in (1, 2))
    assert narrow.high - narrow.low < wide.high - wide.low
    for limit in (low[0], high[0]):
        if 1e-6 < limit < 1 - 1e-6 and 0 < a < 1:
            assert abs(a - limit) == pytest.approx(1.959963984540054 * np.sqrt(hanley_mcneil(limit, m, n)), rel=1e-6)


def test_which_interval_is_printed():
    a = [0.75, 0.25, 0.75, 0.76, 1, 0.5, np.nan, 0.8, 0.7]
    v = [0.001, 0.001, 0.001, 0.001, 0, 0, np.nan, np.nan, 0.001]
    m = [10, 500, 9, 10, 60, 60, 0, 1, 1000]
    n = [500, 10, 500, 500, 60, 60, 10, 16, 8]
    interval = auroc_interval(a, v, m, n)
    by_logit = [True, True, False, False, False, False, False, False, False]
    logit, score, few = (
        np.array(limits) for limits in (logit_interval(a, v), score_interval(a, m, n), few_rows_interval(a, m, n))
    )
    rarer_are_few = np.minimum(m, n) < 10
    assert rarer_are_few.tolist() == [False, False, True, False, False, False, True, True, True]
    wanted = np.where(by_logit, logit, np.where(rarer_are_few, few, score))
    np.testing.assert_array_equal(np.array(interval), wanted)
    assert np.isnan([interval.low[6], interval.high[6]]).all()
    assert np.isfinite(interval.low[[4, 5, 7]]).all()


def test_the_printed_interval_covers():
    """Of 3,000 hospitals whose scores are far from normal, in cells where one rule alone covers .73 or .92."""
    rng = np.random.default_rng(0)
    for auroc, law in ((0.95, "exponential"), (0.6, "unequal")):
        y = np.tile(np.repeat([1, 0], [10, 100]), 3000)
        noise = rng.standard_normal(len(y))
        scores = np.where(y == 1, ndtri(auroc) * np.sqrt(1 + 1.5**2) + 1.5 * noise, noise)
        if law == "exponential":
            scores = rng.exponential(size=len(y)) * np.where(y == 1, auroc / (1 - auroc), 1)
        estimates = delong(placements(scores, y, 110 * np.arange(3001)))
        low, high = auroc_interval(estimates.auroc[0], estimates.variance[0], 10, 100)
        assert 0.93 < ((low <= auroc) & (auroc <= high)).mean() < 0.98


@pytest.mark.parametrize(
    ("auroc", "sd", "m", "n"), [(0.8, "exponential", 1, 16), (0.5, 1.5, 5, 50), (0.6, 1.5, 9, 12), (0.95, 1, 3, 30)]
)
def test_the_printed_interval_of_few_rows_covers(auroc, sd, m, n):
    """Of 4,000 hospitals; the score interval covers .91, .90 and .93 in the first three."""
    rng = np.random.default_rng(1)
    y = np.tile(np.repeat([1, 0], [m, n]), 4000)
    noise = rng.standard_normal(len(y))
    if sd == "exponential":
        scores = rng.exponential(size=len(y)) * np.where(y == 1, auroc / (1 - auroc), 1)
    else:
        scores = np.where(y == 1, ndtri(auroc) * np.sqrt(1 + sd**2) + sd * noise, noise)
    estimates = delong(placements(scores, y, (m + n) * np.arange(4001)))
    low, high = auroc_interval(estimates.auroc[0], estimates.variance[0], m, n)
    assert ((low <= auroc) & (auroc <= high)).mean() > 0.935


def test_effective_rows():
    """5 events, 50 non-events: .4 / 5 + .2 / 50 = .084, 11.905 rows; which class is the rarer makes no difference."""
    rows = 1 / 0.084
    assert np.array(few_rows_interval(0.8, 5, 50)) == pytest.approx(np.array(clopper_pearson(0.8 * rows, rows)))
    assert few_rows_interval(0.8, 50, 5) == few_rows_interval(0.8, 5, 50)
    low, high = few_rows_interval([0, 1], 5, 50)
    assert (low[0], high[1]) == (0, 1)
    assert (high[0], low[1]) == pytest.approx((1 - 0.025 ** (1 / rows), 0.025 ** (1 / rows)))
    assert np.isnan(few_rows_interval([0.7, 0.7, np.nan], [0, 3, 3], [3, 0, 3])).all()


def test_undefined():
    assert np.isnan(logit_interval([0, 1, 0.7, 0.7, np.nan], [0.1, 0.1, 0, np.nan, 0.1])).all()
    assert np.isnan(score_interval([0.7, 0.7, np.nan], [0, 3, 3], [3, 0, 3])).all()
    assert np.isnan([*wilson(0, 0), *clopper_pearson(0, 0), *share_interval(0, 0)]).all()
    assert np.isnan(observed_over_expected(3, 0, 10)).all()


def test_worked_shares():
    assert wilson(4, 5) == pytest.approx((0.375535, 0.963776), abs=6e-7)
    assert clopper_pearson(4, 5) == pytest.approx((0.283582, 0.994949), abs=6e-7)
    assert clopper_pearson(0, 1) == pytest.approx((0, 0.975), abs=1e-12)
    for limits in (wilson([0, 9], [9, 9]), clopper_pearson([0, 9], [9, 9])):
        assert (limits.low[0], limits.high[1]) == (0, 1)
        assert limits.high[0] == pytest.approx(1 - limits.low[1])


@given(st.integers(0, 60), st.integers(1, 60))
def test_clopper_pearson_inverts_the_binomial_test(x, n):
    x = min(x, n)
    low, high = clopper_pearson(x, n)
    if x > 0:
        assert binom.sf(x - 1, n, low) == pytest.approx(0.025)
    if x < n:
        assert binom.cdf(x, n, high) == pytest.approx(0.025)
    np.testing.assert_array_equal(share_interval(x, n), (clopper_pearson if n < 10 else wilson)(x, n))


@pytest.mark.parametrize(
    ("observed", "rows", "expected", "limits"),
    [
        (5, 5, 4.5, (0.531307, 1.111111)),
        (0, 25, 4, (0, 0.857407)),
        (24, 25, 20, (0.995604, 1.248735)),
        (5, 12, 5.8, (0.313763, 1.496545)),
        (2, 300, 4, (0.060629, 1.790512)),
    ],
)
def test_observed_over_expected(observed, rows, expected, limits):
    assert observed_over_expected(observed, expected, rows) == pytest.approx(limits, abs=6e-7)


@given(st.integers(0, 60), st.integers(1, 60), st.floats(0.01, 60))
def test_observed_over_expected_is_never_certain_nor_beyond_what_is_possible(x, n, expected):
    x = min(x, n)
    low, high = observed_over_expected(x, expected, n)
    assert 0 <= low < high <= n / expected * (1 + 1e-12)
    assert low <= x / expected * (1 + 1e-12)
    assert x / expected <= high * (1 + 1e-12)
