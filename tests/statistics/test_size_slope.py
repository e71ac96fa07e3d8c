"""The slope on size: worked numbers, exact lines, and who has none."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t as student

from raysim.statistics.meta_analysis.size_slope import SizeSlope, size_slope

A = [0.95, 0.91, 0.90, 0.88, 0.86, 0.93, 0.70, 0.92, 0.89, 0.85, 0.94, 0.87]
N = [900, 500, 420, 300, 150, 700, 40, 610, 330, 120, 800, 200]
V = [0.0004, 0.0008, 0.001, 0.0012, 0.0025, 0.0005, 0.009, 0.0006, 0.0011, 0.003, 0.0004, 0.002]


def test_worked_numbers():
    line = size_slope(A, V, N, 0.0)
    assert (line.intercept, line.slope) == pytest.approx((0.5536719786, 0.0577831705), abs=6e-11)
    assert line.se == pytest.approx(0.0150201, abs=6e-8)  # the residuals' scale, .088, does not narrow it
    reach = student.ppf(0.975, 10) * line.se
    assert (line.low, line.high) == pytest.approx((line.slope - reach, line.slope + reach))
    assert line.doubling == pytest.approx(line.slope * np.log(2))
    assert line.demonstrated


def test_residuals_widen_the_error():
    line = size_slope(A, np.array(V) / 100, N, 0.0)
    assert line.slope == pytest.approx(0.0577831705, abs=6e-11)
    assert line.se == pytest.approx(0.00446556, abs=6e-9)  # as weighted least squares has it, whatever the unit of v


def test_a_true_spread_evens_the_weights():
    x = np.log(N)
    plain = np.polyfit(x, A, 1)
    assert size_slope(A, V, N, 1e6).slope == pytest.approx(plain[0], rel=1e-6)


def test_a_line_is_found():
    line = size_slope(0.5 - 0.03 * np.log(N), V, N, 0.001)
    assert (line.slope, line.intercept) == pytest.approx((-0.03, 0.5))
    assert line.high < 0.03


def test_who_has_no_slope():
    assert np.isnan(size_slope(A[:9], V[:9], N[:9], 0.0).slope)
    assert np.isfinite(size_slope(A[:10], V[:10], N[:10], 0.0).slope)
    assert np.isfinite(size_slope(A[:10], V[:10], [1, *N[1:10]], 0.0).slope)
    assert np.isnan(size_slope(A[:10], V[:10], [0, *N[1:10]], 0.0).slope)
    alike = 100 + np.arange(12)
    assert np.isnan([size_slope(A, V, alike, 0.0).low, size_slope(A, V, alike, 0.0).intercept]).all()
    assert not size_slope(A, V, alike, 0.0).demonstrated


def test_hospitals_without_a_figure_are_left_out():
    a, v, n = [*A, np.nan, 0.1, 0.1], [*V, 0.1, np.nan, 0.1], [*N, 10, 10, 0]
    assert size_slope(a, v, n, 0.01) == size_slope(A, V, N, 0.01)


@pytest.mark.parametrize(
    ("low", "high", "shown"), [(0.0, 2.0, False), (1e-9, 2.0, True), (-2.0, 0.0, False), (-2.0, -1e-9, True)]
)
def test_a_direction_is_shown_where_the_interval_excludes_0(low, high, shown):
    assert SizeSlope((low + high) / 2, 0.5, low, high, 0.7).demonstrated == shown
