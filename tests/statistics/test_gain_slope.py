"""The slope of gains on size: one federation by hand, and its size under equal gains."""

from __future__ import annotations

import numpy as np
import pytest

from raysim.statistics.meta_analysis.gain_slope import gain_slope, smoothed_variances

STUDIES = np.array(
    [
        (126, 34, 0.0812, 0.0355),
        (350, 99, 0.0044, 0.0116),
        (385, 101, 0.0262, 0.0091),
        (409, 94, 0.0009, 0.0124),
        (517, 115, -0.0045, 0.0123),
        (603, 264, 0.0008, 0.0063),
        (756, 117, 0.0075, 0.0088),
        (791, 359, 0.0076, 0.0035),
        (819, 188, 0.0065, 0.0069),
        (822, 281, 0.0059, 0.0033),
        (856, 145, 0.0005, 0.0133),
        (919, 212, 0.0018, 0.0076),
        (1041, 225, 0.0054, 0.0043),
        (1118, 278, -0.0007, 0.0046),
        (1510, 362, 0.0020, 0.0036),
    ]
)
"""Fifteen studies of head injury: rows, deaths, the gain over training alone and its standard error."""


def test_fifteen_studies_show_no_slope() -> None:
    rows, events, gains, se = STUDIES.T
    variance = smoothed_variances(se**2, events, rows - events, rows)
    # Rounded inputs: the exact ones give .0312 to .0038, -.006985 (.004541), p .148.
    assert (np.sqrt(variance.max()), np.sqrt(variance.min())) == pytest.approx((0.0312, 0.0038), abs=1e-4)
    found = gain_slope(gains, variance, rows)
    assert found.slope == pytest.approx(-0.006985, abs=1e-4)
    assert (found.high - found.low) / 2 / 2.1603686565 == pytest.approx(0.004541, abs=3e-5)
    assert found.p == pytest.approx(0.148, abs=0.005)
    assert found.robust_p == pytest.approx(0.22, abs=0.01)
    assert not found.demonstrated
    assert found.halving == pytest.approx(0.006985 * np.log(2), abs=1e-4)


def test_the_slope_is_weighted_least_squares() -> None:
    rng = np.random.default_rng(3)
    n, v = np.exp(rng.normal(5, 1, 30)), rng.uniform(1e-4, 4e-4, 30)
    y = 0.05 - 0.02 * np.log(n) + rng.normal(0, 0.005, 30)  # less than v says: no spread is added
    X, w = np.column_stack([np.ones(30), np.log(n)]), 1 / v
    inverse = np.linalg.inv(X.T @ (w[:, None] * X))
    slope = (inverse @ X.T @ (w * y))[1]
    found = gain_slope(y, v, n)
    assert found.slope == pytest.approx(slope)
    assert found.high - slope == pytest.approx(2.0484071418 * np.sqrt(inverse[1, 1]))
    residuals, leverage = y - X @ inverse @ X.T @ (w * y), w * np.einsum("ij,jk,ik->i", X, inverse, X)
    meat = X.T @ (((w * residuals / (1 - leverage)) ** 2)[:, None] * X)
    from scipy.stats import t

    robust = np.sqrt((inverse @ meat @ inverse)[1, 1])
    assert found.robust_p == pytest.approx(2 * t.sf(abs(slope) / robust, 28))
    assert found.demonstrated


def test_equal_gains_are_rarely_called_unequal() -> None:
    """The noise of small hospitals is larger, and their own variances are chance too."""
    rng = np.random.default_rng(7)
    claims = 0
    for _ in range(300):
        rows = np.round(np.exp(rng.normal(np.log(150), 0.8, 50))).clip(20)
        events = np.round(rows * 0.2).clip(2)
        true = 2 * (1 - np.clip(0.2 + 0.12 * np.log(rows), 0.4, 0.95)) * 0.16 * (1 / events + 1 / (rows - events))
        df = np.minimum(events, rows - events) - 1
        own = true * rng.chisquare(np.maximum(df, 1)) / np.maximum(df, 1)
        gains = 0.02 + rng.normal(0, np.sqrt(true))
        claims += gain_slope(gains, smoothed_variances(own, events, rows - events, rows), rows).demonstrated
    assert claims / 300 <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 300)


def test_what_cannot_be_judged_is_undefined() -> None:
    ten = np.ones(10)
    assert np.isnan(gain_slope(ten[:9], ten[:9], np.arange(1, 10)).slope)
    assert np.isnan(gain_slope(ten, ten, 50 * ten).p)
    assert np.isnan(smoothed_variances(ten, ten, ten, np.arange(1, 11))).all()
