"""Random effects: worked numbers, agreement of the estimators where they must agree, and invariances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from raysim.statistics.meta_analysis.spread import (
    Mean,
    cochran_q,
    dersimonian_laird,
    hartung_knapp,
    heterogeneity,
    paule_mandel,
    prediction,
    q_profile,
    reml,
    shrink,
)

Y = [1.10, 1.60, 0.70, 2.20, 1.35]
V = [0.10, 0.05, 0.20, 0.15, 0.08]

hospitals = st.lists(st.tuples(st.floats(-3, 3), st.floats(0.01, 2)), min_size=3, max_size=12).map(np.transpose)


def test_worked_heterogeneity():
    spread = heterogeneity(Y, V)
    assert (spread.q, spread.p, spread.i2) == pytest.approx((8.3578846154, 0.0793139335, 0.5214099998), abs=6e-11)
    assert hartung_knapp(Y, V, 0.0).estimate == pytest.approx(1.4407692308, abs=6e-11)


def test_worked_spreads():
    assert dersimonian_laird(Y, V) == pytest.approx(0.1068915094, abs=6e-11)
    assert paule_mandel(Y, V) == pytest.approx(0.1576480180, abs=6e-11)
    assert reml(Y, V) == pytest.approx(0.1047144869, abs=2e-8)  # the number that was given stopped at a step of 1e-8
    assert q_profile(Y, V) == pytest.approx((0, 2.4436641210), abs=6e-11)


def test_worked_means_and_predictions():
    pm, of_reml = paule_mandel(Y, V), 0.1047144869
    mean = hartung_knapp(Y, V, pm)
    # At this spread Q is k - 1, and the scale of the residuals exactly 1.
    assert (mean.estimate, mean.se) == pytest.approx((1.4122173110, (1 / (np.array(V) + pm)).sum() ** -0.5), abs=6e-11)
    assert (mean.low, mean.high) == pytest.approx((0.774443, 2.049992), abs=6e-7)
    assert prediction(mean, pm, 5) == pytest.approx((0.138636, 2.685798), abs=6e-7)
    mean = hartung_knapp(Y, V, of_reml, conservative=False)
    assert (mean.estimate, mean.se) == pytest.approx((1.4166917631, 0.2243458547), abs=6e-11)
    assert (mean.low, mean.high) == pytest.approx((0.793808, 2.039576), abs=6e-7)
    assert prediction(mean, of_reml, 5) == pytest.approx((0.323443, 2.509939), abs=1e-6)


def test_worked_shrinkage():
    t = paule_mandel(Y, V)
    mean = hartung_knapp(Y, V, t)
    shrunken = shrink(Y, V, t, mean)
    assert shrunken.estimate == pytest.approx([1.22117978, 1.55478341, 1.09827835, 1.81590065, 1.37094436], abs=6e-9)
    weight = t / (t + np.array(V))
    assert shrunken.variance == pytest.approx(V * weight + (1 - weight) ** 2 * mean.se**2)


def test_without_spread_all_are_equal():
    mean = hartung_knapp(Y, V, 0.0)
    shrunken = shrink(Y, V, 0.0, mean)
    assert shrunken.estimate == pytest.approx([mean.estimate] * 5)
    assert shrunken.variance == pytest.approx([mean.se**2] * 5)


@given(hospitals)
def test_reml_is_where_the_restricted_likelihood_is_flat(drawn):
    y, v = drawn
    assume(np.ptp(y) > 0.1)
    t = reml(y, v)

    def slope(t):
        """Of the restricted log likelihood, term by term."""
        w = 1 / (v + t)
        mu = w @ y / w.sum()
        return 0.5 * (w**2 @ (y - mu) ** 2 - w.sum() + w**2 @ np.ones(len(y)) / w.sum())

    scale = np.square(1 / (v + t)).sum()
    assert slope(t) == pytest.approx(0, abs=1e-6 * scale) if t > 0 else slope(0.0) < 1e-6 * scale


@given(hospitals)
def test_paule_mandel_and_the_profile_are_roots_of_q(drawn):
    y, v = drawn
    low, high = q_profile(y, v)
    t = paule_mandel(y, v)
    assert low <= t <= high
    if t > 0:
        assert cochran_q(y, v, t) == pytest.approx(len(y) - 1, rel=1e-6)


@given(st.lists(st.floats(-3, 3), min_size=3, max_size=10), st.floats(0.01, 1))
def test_equal_variances_have_one_spread(y, v):
    t = float(np.var(y, ddof=1)) - v
    assume(t > 1e-3)
    variances = np.full(len(y), v)
    for estimate in (dersimonian_laird, paule_mandel, reml):
        assert estimate(y, variances) == pytest.approx(t, rel=1e-6)


@given(hospitals, st.floats(-5, 5), st.floats(0.1, 10))
def test_a_shift_changes_no_spread_and_a_scale_scales_it(drawn, shift, scale):
    y, v = drawn
    assume(np.ptp(y) > 0.1)
    for estimate in (dersimonian_laird, paule_mandel):
        assert estimate(y + shift, v) == pytest.approx(estimate(y, v), rel=1e-6, abs=1e-9)
        assert estimate(scale * y, scale**2 * v) == pytest.approx(scale**2 * estimate(y, v), rel=1e-6, abs=1e-9)


def test_the_conservative_mean_is_never_surer_than_the_variances():
    y = [1.0, 1.001, 0.999]
    v = [1.0, 1.0, 1.0]
    assert hartung_knapp(y, v, 0.0).se == pytest.approx(np.sqrt(1 / 3))
    assert hartung_knapp(y, v, 0.0, conservative=False).se < 0.001


def test_three_hospitals_predict_a_further_one():
    """By t at 2 degrees of freedom, 4.3027, and a variance of 3 + 1^2."""
    mean = Mean(10.0, 1.0, 9.0, 11.0)
    assert prediction(mean, 3.0, 3) == pytest.approx((10 - 2 * 4.302652730, 10 + 2 * 4.302652730))
    assert np.isnan(prediction(mean, 3.0, 2)).all()


def test_undefined_and_refused():
    assert np.isnan([dersimonian_laird([1], [1]), paule_mandel([1], [1]), reml([1], [1]), *q_profile([1], [1])]).all()
    alone = hartung_knapp([1.0], [1.0], 0.0)
    assert alone.estimate == 1
    assert np.isnan([alone.se, alone.low, alone.high, *prediction(alone, 0.0, 1), heterogeneity([1], [1]).q]).all()
    for y, v in (([], []), ([1, 2], [1]), ([1, np.nan], [1, 1]), ([1, 2], [1, 0])):
        with pytest.raises(ValueError, match="y, v"):
            cochran_q(y, v)


def test_two_hospitals_have_an_interval():
    assert np.isfinite(q_profile([0.1, 0.9], [0.01, 0.02])).all()
