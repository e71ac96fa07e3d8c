"""Calibration and decisions: worked numbers, definitions by loops, histograms against rows, and undefined cases."""

from __future__ import annotations

from dataclasses import astuple
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, logit, ndtri
from scipy.stats import chi2, norm

from raysim.metrics.measures import merge_histograms, score_histogram
from raysim.statistics.clinical import calibration_spread as spreading
from raysim.statistics.clinical.calibration import (
    Bins,
    Groups,
    binned,
    calibration,
    calibration_error,
    from_histogram,
    raw,
)
from raysim.statistics.clinical.calibration_spread import (
    _chance,
    _middles,
    _rows,
    calibration_chance,
    calibration_spread,
)
from raysim.statistics.clinical.thresholds import Counts, count, decision, net_benefit, threshold_at_specificity
from raysim.statistics.meta_analysis.spread import hartung_knapp, paule_mandel

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
    assert (fit.rows, fit.events, fit.expected) == (12, 5, pytest.approx(5.8))
    assert fit.ratio == pytest.approx(0.8620689655, abs=6e-11)
    assert fit.ratio_low < fit.ratio < fit.ratio_high


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


def test_the_spread_of_intercepts():
    rng = np.random.default_rng(3)
    rows = [15, 100, 200, 150, 90, 60, 300, 250]
    groups = hospitals(rng, rows, 0.8)
    spread = calibration_spread(groups, rng, draws=200)
    intercepts = np.array([calibration(g).in_the_large.estimate for g in groups])
    together = raw(
        *(np.concatenate(parts) for parts in zip(*((expit(g.logit), g.events) for g in groups), strict=True))
    )
    common = calibration(together).in_the_large.estimate
    expected = [expit(g.logit + common) for g in groups]
    enough = np.array([min(p.sum(), (1 - p).sum()) >= 10 for p in expected])
    assert 2 < sum(enough) < 8
    assert np.isfinite(spread.intercept).tolist() == np.isfinite(spread.se).tolist() == enough.tolist()
    y, v = intercepts[enough], np.array([1 / (p * (1 - p)).sum() for p in expected])[enough]
    assert spread.intercept[enough] == pytest.approx(y)
    assert spread.se[enough] == pytest.approx(np.sqrt(v))
    wanted = hartung_knapp(y, v, paule_mandel(y, v))
    assert (spread.mean.estimate, spread.mean.se) == pytest.approx((wanted.estimate, wanted.se))
    assert 0 < spread.tau.low < 0.8 < spread.tau.high
    assert spread.p == 1 / 201


def test_hospitals_that_happen_to_have_events_do_not_move_the_mean():
    """Of hospitals that expect about ten events, those that have ten or more have intercepts above the true .4."""
    rng = np.random.default_rng(8)
    logits = [rng.standard_normal(46) - 2 for _ in range(150)]
    groups = [raw(expit(z), rng.random(46) < expit(z + 0.4)) for z in logits]
    spread = calibration_spread(groups, rng, draws=10)
    lucky = [calibration(g).in_the_large.estimate for g in groups if g.events.sum() >= 10]
    assert np.mean(lucky) > 0.6
    assert 20 < spread.hospitals < 130
    assert spread.mean.low < 0.4 < spread.mean.high
    assert np.isnan(calibration_spread([], rng).p)


def test_chance_alone_is_that_of_the_whole_spread():
    groups = hospitals(np.random.default_rng(3), [40, 12, 90, 5], 0.5)
    whole = calibration_spread(groups, np.random.default_rng(4), draws=60)
    assert calibration_chance(groups, np.random.default_rng(4), draws=60) == whole.p


def test_equally_calibrated_hospitals():
    rng = np.random.default_rng(4)
    spread = calibration_spread(hospitals(rng, [40] * 12, 0.0), rng, draws=200)
    assert spread.p > 0.05
    assert spread.mean.low < 0.4 < spread.mean.high


def test_the_test_of_calibration_is_calibrated():
    """Of 250 equal federations of tiny hospitals at most as many are called different as a 5 % test may call.

    Few events tie with many draws, and a tie counts as reached: the mean p is above a half.
    """
    rng = np.random.default_rng(5)
    p = np.array([calibration_spread(hospitals(rng, [3, 8, 5, 12, 4], 0.0), rng, draws=99).p for _ in range(250)])
    assert (p <= 0.05).sum() <= 19
    assert p.mean() == pytest.approx(0.59, abs=0.08)


def test_the_interval_of_the_spread_holds_it():
    """Of 120 federations of small and large hospitals as many as a 95 % interval holds; other logits change nothing."""
    rng = np.random.default_rng(9)
    for spread in (0.0, 0.5):
        held = 0
        for _ in range(120):
            tau = calibration_spread(hospitals(rng, [6, 200, 15, 40, 90, 11, 300, 25], spread), rng, draws=99).tau
            held += tau.low <= spread <= tau.high
        assert 106 <= held <= 120
    groups = hospitals(rng, [60, 90, 40, 200], 0.6)
    moved = [Groups(g.logit - 1.5, g.rows, g.events) for g in groups]
    each = [calibration_spread(g, np.random.default_rng(2), draws=200).tau for g in (groups, moved)]
    assert each[0] == pytest.approx(each[1], abs=1e-4)


def test_the_spread_of_certain_hospitals_is_that_of_their_intercepts():
    """Of 20 hospitals with 10,000 rows each events say the intercepts; chi-square on 19 df bounds their spread."""
    rows, intercepts = 10_000.0, 0.6 * ndtri((np.arange(20) + 0.5) / 20)
    groups = [Groups(np.zeros(1), np.array([rows]), np.array([np.round(rows * expit(a))])) for a in intercepts]
    tau = calibration_spread(groups, np.random.default_rng(1), draws=100).tau
    sd = intercepts.std(ddof=1)
    assert tau.estimate == pytest.approx(sd, rel=0.12)
    exact = sd * np.sqrt(19 / chi2.ppf([0.975, 0.025], 19))
    assert (tau.low, tau.high) == pytest.approx(exact, rel=0.2)


def test_too_few_hospitals_have_no_spread_of_calibration():
    rng = np.random.default_rng(6)
    spread = calibration_spread(hospitals(rng, [100, 100], 0.0), rng)
    assert spread.hospitals == 2
    assert np.isnan([spread.p, *spread.tau, spread.mean.estimate]).all()
    perfect = [raw([0.0, 1.0], [0, 1])] * 4
    assert np.isnan(calibration_spread(perfect, rng).p)


# --- thresholds ---


def test_worked_decisions():
    at_2 = count(P, Y, 0.2)
    assert at_2 == Counts(5, 6, 0, 1)
    gain = net_benefit(at_2, 0.2)
    assert (gain.value, gain.everyone) == pytest.approx((0.2916666667, 0.2708333333), abs=6e-11)
    at_5 = count(P, Y, 0.5)
    assert at_5 == Counts(4, 2, 1, 5)
    gain = net_benefit(at_5, 0.5)
    assert (gain.value, gain.everyone) == pytest.approx((0.1666666667, -0.1666666667), abs=6e-11)
    at_half = decision(at_5)
    values = [at_half.sensitivity.value, at_half.specificity.value, at_half.ppv.value, at_half.prevalence]
    assert values == pytest.approx([0.8, 5 / 7, 2 / 3, 5 / 12])
    assert (at_half.sensitivity.low, at_half.sensitivity.high) == pytest.approx((0.283582, 0.994949), abs=6e-7)
    assert (at_half.npv.successes, at_half.npv.of) == (5, 6)
    assert at_2 + at_5 == Counts(9, 8, 1, 6)


def test_the_error_of_net_benefit_is_that_of_its_terms():
    counts, t = Counts(30, 40, 10, 120), 0.25
    odds = t / (1 - t)
    terms = np.repeat([1.0, -odds, 0.0, 0.0], counts)
    gain = net_benefit(counts, t)
    assert gain.value == pytest.approx(terms.mean())
    assert gain.high - gain.value == pytest.approx(1.959963984540054 * np.sqrt(terms.var() / 200))
    assert gain.value - gain.low == pytest.approx(gain.high - gain.value)


def test_undefined_decisions():
    nothing = decision(Counts(0, 0, 0, 0))
    assert np.isnan([share.value for share in nothing[:4]]).all()
    assert np.isnan([nothing.prevalence, *net_benefit(Counts(0, 0, 0, 0), 0.5)]).all()
    no_event = decision(Counts(0, 3, 0, 4))
    assert np.isnan([no_event.sensitivity.value, no_event.sensitivity.low]).all()
    for t in (0, 1, 1.5):
        with pytest.raises(ValueError, match="probability"):
            net_benefit(Counts(1, 1, 1, 1), t)


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
        counts = count(
            groups.logit.repeat(groups.rows.astype(int)),
            np.concatenate(
                [np.repeat([1, 0], [int(e), int(n - e)]) for e, n in zip(groups.events, groups.rows, strict=True)]
            ),
            edge,
        )
        assert counts.true_positive == groups.events[called].sum() == histogram.positives[b:].sum()
        assert counts.false_positive == histogram.negatives[b:].sum()


def test_groups_are_as_their_rows():
    groups = Groups(np.array([-1.0, 0.5]), np.array([6.0, 4.0]), np.array([2.0, 3.0]))
    rows = raw(expit(np.repeat([-1.0, 0.5], [6, 4])), [1, 1, 0, 0, 0, 0, 1, 1, 1, 0])
    mine, theirs = calibration(groups), calibration(rows)
    assert mine.slope.estimate == pytest.approx(theirs.slope.estimate)
    assert mine.slope.se == pytest.approx(theirs.slope.se)


def test_rows_that_do_not_fit():
    with pytest.raises(ValueError, match="probabilities"):
        raw([0.1, 0.2], [1])


def test_spread_intercepts_lie_where_they_expect_as_many_events():
    """Of rows whose logit is 1, in bins a 32nd wide; against 10,000 quantiles of normal intercepts."""
    taus = [0.0, 1.0, 2.0]
    middles = _middles(SimpleNamespace(logit=np.ones(5), counts=np.ones(5)), taus)
    z = ndtri((np.arange(10_000) + 0.5) / 10_000)
    expected = [expit(1 + middle + tau * z).mean() for middle, tau in zip(middles, taus, strict=True)]
    assert expected == pytest.approx([expit(1.0)] * 3, abs=2e-3)


def test_draws_that_are_as_far_as_what_is_observed_count():
    """Events are all but certain: all draws are as what is observed."""
    hospitals = [Groups(np.array([20.0]), np.array([n]), np.array([n])) for n in (3.0, 4.0, 5.0)]
    assert _chance(hospitals, 0.0, np.random.default_rng(0), 5) == 1.0


def test_rows_of_hospitals_have_their_own_variance():
    hospitals = [Groups(np.log([1 / 3, 3.0]), np.array([n, 2.0]), np.array([1.0, 1.0])) for n in (3.0, 4.0, 5.0)]
    rows = _rows(hospitals, 0.0)
    assert rows is not None
    assert rows.observed.tolist() == [2.0] * 3
    assert rows.expected.tolist() == pytest.approx([n / 4 + 2 * 3 / 4 for n in (3, 4, 5)])
    assert rows.variance.tolist() == pytest.approx([(n + 2) * 3 / 16 for n in (3, 4, 5)])


def test_draws_without_a_spread_are_as_far_as_chance_is(monkeypatch):
    """Three hospitals, one intercept: a chi-square statistic of 2 degrees of freedom, whose mean is 2."""
    kept = []
    monkeypatch.setattr(spreading, "invert", lambda observed, drawn, taus: kept.append(drawn[0]))
    hospitals = [Groups(np.array([z]), np.array([200.0]), np.array([99.0])) for z in (2.0, 0.0, -2.0)]
    spreading._spread(hospitals, 0.0, np.random.default_rng(0), 400)
    assert kept[0].mean() == pytest.approx(2.0, abs=0.5)
