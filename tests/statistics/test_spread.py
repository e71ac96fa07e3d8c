"""Random effects: worked numbers, agreement of the estimators where they must agree, and invariances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from raysim.statistics.meta_analysis.spread import cochran_q, hartung_knapp, paule_mandel

Y = [1.10, 1.60, 0.70, 2.20, 1.35]
V = [0.10, 0.05, 0.20, 0.15, 0.08]

hospitals = st.lists(st.tuples(st.floats(-3, 3), st.floats(0.01, 2)), min_size=3, max_size=12).map(np.transpose)


def test_worked_numbers() -> None:
    t = paule_mandel(Y, V)
    assert cochran_q(Y, V) == pytest.approx(8.3578846154, abs=6e-11)
    assert t == pytest.approx(0.1576480180, abs=6e-11)
    assert hartung_knapp(Y, V, 0.0).estimate == pytest.approx(1.4407692308, abs=6e-11)
    mean = hartung_knapp(Y, V, t)
    # At this spread Q is k - 1, and the scale of the residuals exactly 1.
    assert (mean.estimate, mean.se) == pytest.approx((1.4122173110, (1 / (np.array(V) + t)).sum() ** -0.5), abs=6e-11)
    assert (mean.low, mean.high) == pytest.approx((0.774443, 2.049992), abs=6e-7)
    mean = hartung_knapp(Y, V, 0.1047144869)
    assert (mean.estimate, mean.se) == pytest.approx((1.4166917631, 0.2243458547), abs=6e-11)
    assert (mean.low, mean.high) == pytest.approx((0.793808, 2.039576), abs=6e-7)


@given(hospitals)
def test_paule_mandel_is_a_root_of_q(drawn) -> None:
    y, v = drawn
    t = paule_mandel(y, v)
    assert cochran_q(y, v, t) == pytest.approx(len(y) - 1, rel=1e-6) if t > 0 else cochran_q(y, v) <= len(y) - 1


@given(st.lists(st.floats(-3, 3), min_size=3, max_size=10), st.floats(0.01, 1))
def test_equal_variances_have_one_spread(y, v) -> None:
    t = float(np.var(y, ddof=1)) - v
    assume(t > 1e-3)
    assert paule_mandel(y, np.full(len(y), v)) == pytest.approx(t, rel=1e-6)


@given(hospitals, st.floats(-5, 5), st.floats(0.1, 10))
def test_a_shift_changes_no_spread_and_a_scale_scales_it(drawn, shift, scale) -> None:
    y, v = drawn
    assume(np.ptp(y) > 0.1)
    assert paule_mandel(y + shift, v) == pytest.approx(paule_mandel(y, v), rel=1e-6, abs=1e-9)
    assert paule_mandel(scale * y, scale**2 * v) == pytest.approx(scale**2 * paule_mandel(y, v), rel=1e-6, abs=1e-9)


def test_the_standard_error_is_at_least_that_from_the_variances():
    y = [1.0, 1.001, 0.999]
    v = [1.0, 1.0, 1.0]
    assert hartung_knapp(y, v, 0.0).se == pytest.approx(np.sqrt(1 / 3))
    assert np.std(y, ddof=1) / np.sqrt(3) < 0.001, "the standard error from residuals"


def test_undefined_and_refused() -> None:
    assert np.isnan(paule_mandel([1], [1]))
    alone = hartung_knapp([1.0], [1.0], 0.0)
    assert alone.estimate == 1
    assert np.isnan([alone.se, alone.low, alone.high]).all()
    for y, v in (([], []), ([1, 2], [1]), ([1, np.nan], [1, 1]), ([1, 2], [1, 0])):
        with pytest.raises(ValueError, match="y, v"):
            cochran_q(y, v)
