"""Calibration and decisions: worked numbers, definitions by loops, histograms against rows, and undefined cases."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, logit
from scipy.stats import norm

from raysim.metrics.measures import merge_histograms, score_histogram
from raysim.statistics.clinical.calibration import Bins, Groups, binned, calibration, calibration_error, from_histogram
from raysim.statistics.clinical.equity import calibration_chance
from raysim.statistics.clinical.thresholds import net_benefits, threshold_at_specificity
from tests.statistics.rows import raw

Y = [1] * 5 + [0] * 7
P = [0.9, 0.8, 0.55, 0.4, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.35]

predictions = st.lists(st.tuples(st.integers(1, 19), st.booleans()), min_size=1, max_size=40).map(
    lambda drawn: (np.array([p / 20 for p, _ in drawn]), np.array([int(y) for _, y in drawn]))
)


def test_worked_calibration():
    fit = calibration(raw(P, Y))
    assert (fit.in_the_large.estimate, fit.in_the_large.se) == pytest.approx((-0.3423456511, 0.6598773312), abs=6e-11)
    assert (fit.intercept.estimate, fit.intercept.se) == pytest.approx((-0.3887752826, 0.83298034), abs=6e-9)
    assert (fit.slope.estimate, fit.slope.se) == pytest.approx((2.4218563900, 1.44994853), abs=1e-8)
    assert fit.slope.low == pytest.approx(2.4218563900 - 1.959963984540054 * 1.44994853)
    assert fit.slope.high == pytest.approx(2.4218563900 + 1.959963984540054 * 1.44994853)


def test_intercept_and_slope_maximise_the_likelihood():
    rng = np.random.default_rng(0)
    p, y = rng.uniform(0.05, 0.95, 200), rng.random(200) < 0.4
    x = logit(p)

    def loss(beta):
        z = beta[0] + beta[1] * x
        return np.logaddexp(0, z).sum() - z[y].sum()

    best = minimize(loss, [0.0, 1.0], tol=1e-10)
    fit = calibration(raw(p, y))
    assert (fit.intercept.estimate, fit.slope.estimate) == pytest.approx(best.x, abs=1e-4)
    large = fit.in_the_large.estimate
    assert expit(x + large).sum() == pytest.approx(y.sum())


@pytest.mark.parametrize(
    ("p", "y"),
    [
        ([0.2, 0.4, 0.3], [0, 0, 0]),
        ([0.2, 0.4, 0.3], [1, 1, 1]),
        ([0.2, 0.3, 0.6, 0.7], [0, 0, 1, 1]),  # separated: only the slope is infinite
        ([0.2, 1.0, 0.6, 0.7], [0, 1, 1, 0]),
        ([0.2, np.nan, 0.6, 0.7], [0, 1, 1, 0]),
        ([], []),
    ],
)
def test_undefined_calibration(p, y):
    fit = calibration(raw(p, y))
    assert np.isnan([fit.slope.estimate, fit.slope.low, fit.intercept.se]).all()
    separated = p == [0.2, 0.3, 0.6, 0.7]
    assert np.isfinite(fit.in_the_large.estimate) == separated


@pytest.mark.parametrize("sign", [1, -1])
def test_a_slope_beyond_20_is_none(sign):
    """9 of 10 have events at one prediction and 1 of 10 at another: the slope is 2 log 9 over their distance."""
    for slope in (19.9, 20.1):
        apart = 2 * np.log(9) / slope
        groups = Groups(sign * np.array([-apart / 2, apart / 2]), np.full(2, 10.0), np.array([1.0, 9.0]))
        estimate = calibration(groups).slope.estimate
        assert estimate == pytest.approx(sign * slope) if slope < 20 else np.isnan(estimate)


def test_equal_predictions_have_no_slope():
    fit = calibration(raw([0.3] * 10, [1, 0] * 5))
    assert np.isnan(fit.slope.estimate)
    assert fit.in_the_large.estimate == pytest.approx(logit(0.5) - logit(0.3))


@given(predictions)
def test_bins_are_right_open_and_the_last_is_closed(drawn):
    p, y = drawn
    sums = binned(raw(p, y))
    edges = [(p * 20).round() // 2 == b for b in range(10)]  # tenths of halves, in whole numbers
    assert sums.rows.tolist() == [inside.sum() for inside in edges]
    assert sums.predicted == pytest.approx([p[inside].sum() for inside in edges])
    assert sums.events.tolist() == [y[inside].sum() for inside in edges]
    one = binned(raw([1.0, 0.0], [1, 0]))
    assert (one.rows[9], one.rows[0]) == (1, 1)


def test_worked_calibration_error():
    sums = binned(raw(P, Y), 5)
    assert np.abs(sums.events - sums.predicted).sum() / 12 == pytest.approx(0.1416666667, abs=6e-11)
    many = Bins(*(20 * values for values in sums))
    assert calibration_error(many, np.random.default_rng(0)).value == pytest.approx(0.1416666667, abs=6e-11)


def test_the_error_of_calibrated_predictions_is_at_its_floor():
    """Predicted 12 % of the time on average: the floor is about .053 with 100 rows and .018 with 1,000."""
    rng = np.random.default_rng(1)
    for rows, floor, high in ((100, 0.053, 0.085), (1000, 0.018, 0.027)):
        p = expit(-2.4 + 1.0 * rng.standard_normal(rows))
        error = calibration_error(binned(raw(p, rng.random(rows) < p)), rng)
        assert error.floor == pytest.approx(floor, rel=0.25)
        assert error.floor_high == pytest.approx(high, rel=0.25)
    biased = calibration_error(binned(raw(p, rng.random(rows) < expit(logit(p) + 1.5))), rng)
    assert biased.value > biased.floor_high
    few = calibration_error(binned(raw(p[:99], np.zeros(99))), rng)
    assert np.isnan(astuple(few)).all()


def test_the_interval_of_the_calibration_error_reaches_as_far_as_events_miss_their_expectation():
    """One bin: the 95th percentile of a normal draw's distance, 1.96 standard errors of the share. Two alike: 3.16."""
    rng = np.random.default_rng(0)
    one = calibration_error(Bins(np.array([0.0, 400.0]), np.array([0.0, 120.0]), np.array([0.0, 160.0])), rng)
    error = np.sqrt(160.5 / 401 * 240.5 / 401 / 400)
    assert one.value == pytest.approx(0.1)
    assert (one.low, one.high) == pytest.approx((0.1 - 1.96 * error, 0.1 + 1.96 * error), abs=0.001)
    two = calibration_error(Bins(*(np.array([value, value]) for value in (200.0, 100.0, 100.0))), rng)
    # Of two standard normal draws a sum of distances is above s in 1 - (2 Phi(s / sqrt 2) - 1)^2 of all.
    reach = np.sqrt(2) * norm.ppf((1 + np.sqrt(0.95)) / 2) * np.sqrt(200 / 4) / 400
    assert (two.value, two.low, two.high) == (0.0, 0.0, pytest.approx(reach, rel=0.04))
    certain = calibration_error(Bins(np.array([100.0]), np.array([1.0]), np.array([0.0])), rng)
    assert certain.high > 0.01 + 0.01, "no event of 100 does not say that there can be none"


def test_histograms_against_rows():
    rng = np.random.default_rng(2)
    z = (rng.standard_normal(4000) * 3).astype(np.float32)
    y = (rng.random(4000) < expit(0.8 * z)).astype(int)
    parts = [score_histogram(z[h::3], y[h::3]) for h in range(3)]
    groups = from_histogram(merge_histograms(parts))
    assert groups.rows.sum() == 4000
    assert groups.events.sum() == y.sum()
    # Every margin is in the bin whose middle stands for it: within 1 %, and .00175 of a probability.
    near = np.abs(z[:, None] - groups.logit).argmin(axis=1)
    assert np.abs(groups.logit[near] - z).max() <= 0.004 * np.abs(z).max() + 1e-6
    assert np.abs(expit(groups.logit[near]) - expit(z)).max() < 0.00175
    rows = calibration(raw(expit(z.astype(float)), y))
    binned_rows = calibration(groups)
    assert binned_rows.slope.estimate == pytest.approx(rows.slope.estimate, rel=0.002)
    assert binned_rows.in_the_large.estimate == pytest.approx(rows.in_the_large.estimate, abs=0.002)


def test_a_histogram_of_infinite_margins_has_no_calibration():
    groups = from_histogram(score_histogram(np.array([-1, 2, np.inf, 0.5]), np.array([0, 1, 1, 0])))
    assert np.isnan(calibration(groups).slope.estimate)


# --- over hospitals ---


def hospitals(rng, rows, spread):
    groups = []
    for n, intercept in zip(rows, spread * rng.standard_normal(len(rows)), strict=True):
        z = rng.standard_normal(n) - 0.5
        groups.append(raw(expit(z), rng.random(n) < expit(z + 0.4 + intercept)))
    return groups


def test_equally_calibrated_hospitals():
    rng = np.random.default_rng(4)
    assert calibration_chance(hospitals(rng, [40] * 12, 0.0), rng, draws=200) > 0.05
    different = hospitals(rng, [15, 100, 200, 150, 90, 60, 300, 250], 0.8)
    assert calibration_chance(different, rng, draws=200) == 1 / 201


def test_the_test_of_calibration_is_calibrated():
    """Of 250 equal federations of tiny hospitals at most as many are called different as a 5 % test may call.

    Few events tie with many draws, and a tie counts as reached: the mean p is above a half.
    """
    rng = np.random.default_rng(5)
    p = np.array([calibration_chance(hospitals(rng, [3, 8, 5, 12, 4], 0.0), rng, draws=99) for _ in range(250)])
    assert (p <= 0.05).sum() <= 19
    assert p.mean() == pytest.approx(0.59, abs=0.08)


def test_too_few_hospitals_have_no_differences_in_calibration():
    rng = np.random.default_rng(6)
    assert np.isnan(calibration_chance([], rng))
    assert np.isnan(calibration_chance(hospitals(rng, [100, 100], 0.0), rng))
    perfect = [raw([0.0, 1.0], [0, 1])] * 4
    assert np.isnan(calibration_chance(perfect, rng))


# --- thresholds ---


def test_worked_net_benefit():
    for counts, threshold, value, everyone in (
        ((5, 6), 0.2, 0.2916666667, 0.2708333333),
        ((4, 2), 0.5, 0.1666666667, -0.1666666667),
    ):
        gain = net_benefits(*counts, 5, 12, threshold)
        assert (gain[0], gain[3]) == pytest.approx((value, everyone), abs=6e-11)


def test_the_error_of_net_benefit_is_that_of_its_terms():
    odds = 0.25 / (1 - 0.25)
    terms = np.repeat([1.0, -odds, 0.0, 0.0], (30, 40, 10, 120))
    value, low, high, _ = net_benefits(30, 40, 40, 200, 0.25)
    assert value == pytest.approx(terms.mean())
    assert high - value == pytest.approx(1.959963984540054 * np.sqrt(terms.var() / 200))
    assert value - low == pytest.approx(high - value)


def test_undefined_net_benefit():
    assert np.isnan(net_benefits(0, 0, 0, 0, 0.5)).all()
    for t in (0, 1, 1.5):
        with pytest.raises(ValueError, match="probability"):
            net_benefits(1, 1, 2, 4, t)


@given(predictions, st.sampled_from([0.5, 0.8, 0.95]))
def test_the_threshold_is_the_smallest_that_is_specific_enough(drawn, wanted):
    p, y = drawn
    n = int((y == 0).sum())
    t = threshold_at_specificity(raw(p, y), wanted)
    if n * (1 - wanted) < 1 - 1e-9:
        assert np.isnan(t)
        return
    z = logit(p)
    candidates = [value for value in np.unique(z) if (z[y == 0] < value).mean() >= wanted]
    assert t == pytest.approx(min(candidates)) if candidates else t == np.inf


def test_thresholds_on_edges_of_histogram_bins_count_exactly():
    rng = np.random.default_rng(7)
    z, y = (rng.standard_normal(500) * 2).astype(np.float32), rng.random(500) < 0.3
    histogram = score_histogram(z, y)
    groups = from_histogram(histogram)
    for b in (10, 100, len(histogram.bins) - 1):
        edge = (groups.logit[b - 1] + groups.logit[b]) / 2  # between two middles, where no margin is within a bin
        called = groups.logit >= edge
        assert groups.events[called].sum() == histogram.positives[b:].sum()
        assert (groups.rows - groups.events)[called].sum() == histogram.negatives[b:].sum()


def test_groups_are_as_their_rows():
    groups = Groups(np.array([-1.0, 0.5]), np.array([6.0, 4.0]), np.array([2.0, 3.0]))
    rows = raw(expit(np.repeat([-1.0, 0.5], [6, 4])), [1, 1, 0, 0, 0, 0, 1, 1, 1, 0])
    mine, theirs = calibration(groups), calibration(rows)
    assert mine.slope.estimate == pytest.approx(theirs.slope.estimate)
    assert mine.slope.se == pytest.approx(theirs.slope.se)


def test_draws_that_are_as_far_as_what_is_observed_count():
    """One of two rows has the event at each hospital, in what is observed and in all draws."""

    class Alternating:
        def random(self, size, dtype):
            return np.broadcast_to(np.tile([0.1, 0.9], size[1] // 2), size).astype(dtype)

    hospitals = [Groups(np.zeros(1), np.array([2.0 * n]), np.array([1.0 * n])) for n in (1, 2, 3)]
    assert calibration_chance(hospitals, Alternating(), 5) == 1.0


@pytest.mark.parametrize("margin", [1e3, 1e12, 1e30, -1e30, 3e38])
def test_one_extreme_margin_changes_no_slope_or_leaves_none(margin):
    """A row that is predicted with certainty, and rightly, says nothing about the slope of the others."""
    rng = np.random.default_rng(3)
    logit = rng.normal(size=300)
    y = (rng.uniform(size=300) < expit(0.3 + 2 * logit)).astype(float)
    plain = calibration(Groups(logit, np.ones(300), y))
    right, wrong = (
        calibration(Groups(np.append(logit, margin), np.ones(301), np.append(y, event)))
        for event in ((1.0, 0.0) if margin > 0 else (0.0, 1.0))
    )
    assert right.slope.estimate == pytest.approx(plain.slope.estimate, abs=1e-9)
    assert right.intercept.se == pytest.approx(plain.intercept.se, abs=1e-9)
    assert right.in_the_large.estimate == pytest.approx(plain.in_the_large.estimate, abs=1e-9)
    assert np.isnan(wrong.slope.estimate) or abs(wrong.slope.estimate) < 0.2
