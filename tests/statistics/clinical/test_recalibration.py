"""Recalibration by hospital: golden values by hand, what is undefined, the prior, and the estimate of its benefit."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit

from raysim.metrics.score_counts import score_counts
from raysim.statistics.clinical import recalibration as recal
from raysim.statistics.clinical.recalibration import Prior, estimated_prior, fit, log_likelihood, mode, rows_of
from raysim.statistics.clinical.recalibration_benefit import benefit, enough, from_counts, rarer_class

P = np.array([0.9, 0.8, 0.55, 0.4, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.35])
Y = np.array([1] * 5 + [0] * 7)
ONE = rows_of(logit(P), Y, [0, 12])
NONE, ONES = np.zeros(1), np.ones(1)


def test_likelihoods_of_no_intercept_and_both():
    a = mode(ONE, None, 0.0)[0]
    both = mode(ONE, None, None)
    assert a[0] == pytest.approx(-0.3423456511, abs=1e-9)
    assert (both[0][0], both[1][0]) == pytest.approx((-0.3887752826, 2.4218563900), abs=1e-9)
    none, intercept, full = (log_likelihood(ONE, at, by)[0] for at, by in ((NONE, ONES), (a, ONES), both))
    assert (none, intercept, full) == pytest.approx((-5.4355322067, -5.2992643628, -4.5015843756), abs=1e-9)
    assert 2 * (full - none) == pytest.approx(1.8678956623, abs=1e-9)
    assert 2 * (full - intercept) == pytest.approx(1.5953599744, abs=1e-9)
    closed = fit(ONE, "closed")
    assert closed.unchanged[0]
    assert closed.reason[0] == recal.WITHIN_CHANCE


@pytest.mark.parametrize(("variance", "expected"), [(0.04, -0.0292359526), (0.25, -0.1258352318), (1.0, -0.2389549945)])
def test_shrunken_intercepts(variance, expected):
    assert fit(ONE, "eb", Prior(0.0, variance)).intercept[0] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("variance", "expected"), [(0.04, (-0.0289072607, 1.0549274452)), (0.25, (-0.1251121045, 1.0544848425))]
)
def test_shrunken_intercepts_and_slopes(variance, expected):
    a, b = mode(ONE, Prior(0.0, variance), 0.04)
    assert (a[0], b[0]) == pytest.approx(expected, abs=1e-9)


def test_one_class_no_rows_and_one_row_are_defined_under_a_prior():
    margins = np.full(10, -2.0)
    of = rows_of(margins, np.zeros(10), [0, 10])
    assert fit(of, "eb", Prior(0.0, 0.25)).intercept[0] == pytest.approx(-0.2404426430, abs=1e-9)
    assert fit(of, "eb", Prior(0.1, 0.09)).intercept[0] == pytest.approx(-0.0066553315, abs=1e-9)
    few = fit(rows_of([0.0], [1], [0, 0, 1]), "eb", Prior(0.3, 0.25))
    assert few.intercept[0] == 0.3
    assert few.reason[0] == ""
    # One event at logit 0: a = .3 + .25 (1 - expit(a)).
    assert few.intercept[1] == pytest.approx(0.3 + 0.25 * (1 - expit(few.intercept[1])), abs=1e-10)


@pytest.mark.parametrize("method", ["intercept", "logistic", "closed"])
def test_without_a_prior_what_has_no_finite_solution_stays_and_says_why(method):
    margins = [0.5, -0.5, 1.0, -1.0, 2.0, -2.0]
    shifts = fit(rows_of([*margins, 0.1, 0.2], [1, 0, 1, 0, 1, 0, 1, 1], [0, 0, 6, 8]), method)
    assert list(shifts.reason[[0, 2]]) == [recal.NO_ROWS, recal.ONE_CLASS]
    assert shifts.unchanged[[0, 2]].all()
    if method != "intercept":
        assert shifts.unchanged[1]
        assert shifts.reason[1] == recal.SEPARATED


def test_the_intercept_makes_observed_equal_expected_where_it_was_fitted():
    rng = np.random.default_rng(1)
    margins, offsets = rng.normal(-1, 1, 600), [0, 100, 250, 600]
    y = rng.random(600) < expit(margins + 0.7)
    shifts = fit(rows_of(margins, y, offsets), "intercept")
    for h, (first, last) in enumerate(itertools.pairwise(offsets)):
        assert expit(margins[first:last] + shifts.intercept[h]).sum() == pytest.approx(y[first:last].sum(), abs=1e-8)


def test_a_reversed_slope_is_never_served():
    rng = np.random.default_rng(2)
    margins = rng.normal(0, 1, 200)
    y = rng.random(200) < expit(-margins)
    for method in ("logistic", "closed"):
        shifts = fit(rows_of(margins, y, [0, 200]), method)
        assert shifts.slope[0] == 1
        assert shifts.reason[0] == recal.REVERSED
        assert expit(margins + shifts.intercept[0]).sum() == pytest.approx(y.sum(), abs=1e-8)


def test_a_hospital_is_fitted_alone_and_with_others_alike():
    rng = np.random.default_rng(3)
    margins, offsets = rng.normal(0, 2, 300), np.array([0, 40, 40, 300])
    y = rng.random(300) < expit(0.5 * margins)
    together = fit(rows_of(margins, y, offsets), "logistic")
    alone = fit(rows_of(margins[40:], y[40:], [0, 260]), "logistic")
    assert (together.intercept[2], together.slope[2]) == pytest.approx((alone.intercept[0], alone.slope[0]), abs=1e-9)


def federation(spread, seed, hospitals=60, rows=150, mean=0.4):
    rng = np.random.default_rng(seed)
    offsets = np.arange(hospitals + 1) * rows
    margins = rng.normal(-1, 1, hospitals * rows)
    shift = np.repeat(rng.normal(mean, spread, hospitals), rows) if spread else mean
    return margins, (rng.random(len(margins)) < expit(margins + shift)).astype(int), offsets


@pytest.mark.parametrize(("spread", "low", "high"), [(0.0, 0.0, 0.15), (0.6, 0.45, 0.8)])
def test_the_prior_finds_mean_and_spread(spread, low, high):
    prior = estimated_prior(rows_of(*federation(spread, 4)))
    assert prior.mean == pytest.approx(0.4, abs=0.2)
    assert low <= np.sqrt(prior.variance) <= high


def test_the_prior_without_spread_is_the_pooled_intercept():
    margins, y, offsets = federation(0.0, 5, hospitals=3)
    prior = estimated_prior(rows_of(margins, y, offsets))
    if prior.variance == 0:
        assert expit(margins + prior.mean).sum() == pytest.approx(y.sum(), abs=1e-7)
    assert estimated_prior(rows_of(margins, np.zeros(len(y)), offsets)) == Prior(0.0, 0.0)


def test_counts_say_nearly_what_rows_say():
    margins, y, offsets = federation(0.4, 6)
    exact, counted = rows_of(margins, y, offsets), from_counts(score_counts(margins, y, offsets))
    first, second = fit(exact, "intercept"), fit(counted, "intercept")
    assert np.abs(first.intercept - second.intercept).max() < 0.01


def test_the_benefit_is_judged_on_other_rows():
    rng = np.random.default_rng
    off = benefit(score_counts(*federation(0.6, 7)), "eb", rng(0))
    assert off.log_loss < -0.01
    assert off.off_after < off.off
    assert off.labelled == 75
    assert off.hospitals == 60
    # Nothing is wrong: shrinkage costs next to nothing, single intercepts cost what they learn from chance.
    right = score_counts(*federation(0.0, 8, rows=20, mean=0.0))
    assert benefit(right, "intercept", rng(0)).log_loss > benefit(right, "eb", rng(0)).log_loss > -0.002
    empty = score_counts(np.empty(0), np.empty(0, int), [0, 0, 0])
    assert np.isnan(benefit(empty, "eb", rng(0)).log_loss)


def test_the_rule_of_use():
    assert enough(np.array([2, 3, 9]))
    assert not enough(np.array([0, 2, 9]))
    assert not enough(np.array([], dtype=np.int64))
    # Many small hospitals have enough together.
    assert enough(np.array([1] * 58 + [0] * 60 + [2]))
    assert not enough(np.array([1] * 57 + [0] * 60 + [2]))
    margins, y, offsets = federation(0.0, 9, hospitals=2, rows=10)
    counts = score_counts(margins, y, offsets)
    assert list(rarer_class(counts)) == [min(part.sum(), 10 - part.sum()) for part in (y[:10], y[10:])]


@given(
    st.lists(st.tuples(st.floats(-6, 6), st.booleans()), max_size=30),
    st.floats(-3, 3),
    st.sampled_from([0.0025, 0.25, 1.69]),
)
def test_a_shrunken_intercept_is_stationary_and_lies_towards_the_mean(rows, mean, variance):
    margins, y = np.array([z for z, _ in rows]), np.array([event for _, event in rows], dtype=float)
    a = fit(rows_of(margins, y, [0, len(rows)]), "eb", Prior(mean, variance)).intercept[0]
    assert (y - expit(a + margins)).sum() - (a - mean) / variance == pytest.approx(0, abs=1e-6)
    # It lies where the rows pull from the mean, and never beyond the intercept that the rows alone have.
    assert np.sign(a - mean) * np.sign((y - expit(mean + margins)).sum()) >= 0
