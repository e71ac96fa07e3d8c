"""The floor of shares and of errors of real labels: by hand, and in federations drawn with and without differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from raysim.statistics.drawn import errors
from raysim.statistics.noise_floor import error_floor, share_floor, true_error_range


def test_the_floor_of_shares():
    """At 30 hospitals of 40 rows with one share, the standard deviation under equal service is the binomial one."""
    rng = np.random.default_rng(17)
    rows = np.full(30, 40)
    equal = share_floor("sensitivity", rng.binomial(rows, 0.7), rows, rows, rng)
    assert equal.figures["std"].floor == pytest.approx(np.sqrt(0.7 * 0.3 / 40), rel=0.1)
    assert (equal.shown, equal.common) == (False, pytest.approx(0.7, abs=0.04))
    true = expit(0.8 + 0.7 * rng.standard_normal(30))
    spread = share_floor("sensitivity", rng.binomial(rows, true), rows, rows, rng)
    assert spread.shown
    assert spread.tau.low < 0.7 < spread.tau.high
    assert "true sensitivity" in spread.sentence()


def test_shares_by_hand_and_at_their_ends():
    successes, rows = np.array([3, 0, 4, 2, 0]), np.array([4, 2, 8, 2, 0])
    floor = share_floor("sensitivity", successes, rows, rows + 1, np.random.default_rng(0), draws=60)
    p, share = 9 / 16, np.array([0.75, 0, 0.5, 1])
    w = rows[:4] / (p * (1 - p))
    assert (floor.hospitals, floor.common) == (4, p)
    assert floor.q == pytest.approx((w * (share - p) ** 2).sum())
    assert floor.figures["lowest"].value == 0.5  # the only one of five rows or more
    for x in (np.zeros(5, dtype=int), rows):
        end = share_floor("sensitivity", x, rows, rows + 1, np.random.default_rng(0), draws=60)
        assert (end.q, end.shown, end.figures["std"].value) == (0, False, 0)


def of_errors(rng, rows, tau, law):
    """``mae [H]`` and ``rmse [H]`` of hospitals whose errors are ``law`` with levels of the spread ``tau``."""
    first = np.cumsum(rows) - rows
    level = np.exp(tau * rng.standard_normal(len(rows)))
    e = np.repeat(level, rows) * law(rows.sum())
    return np.add.reduceat(np.abs(e), first) / rows, np.sqrt(np.add.reduceat(e * e, first) / rows)


def test_drawn_errors_have_the_mean_and_the_variance_that_are_asked_for():
    blocks = list(errors([1, 8], 3.0, 2.0, [0, 0.4], 20_000, np.random.default_rng(1)))
    observed, true = (np.concatenate(parts, axis=1) for parts in zip(*blocks, strict=True))
    assert (true[0] == 3).all()
    assert true[1].mean() == pytest.approx(3, rel=0.01)
    assert np.log(true[1]).std() == pytest.approx(0.4, rel=0.02)
    # A gamma variable of shape 2 and mean 3 has the variance 9 / 2, the mean of 8 an eighth of it.
    assert observed[0].var(axis=0) == pytest.approx([4.5, 4.5 / 8], rel=0.05)


def test_the_floor_of_errors_is_its_definition():
    """Four hospitals by hand: 100 errors in all, each hospital's variance between rows is rmse^2 - mae^2."""
    rows, mae, rmse = np.array([10, 20, 30, 40]), np.array([2.0, 3, 2, 2.5]), np.array([3.0, 4, 3, 3.5])
    floor = error_floor("MAE", mae, rmse, rows, 5 * rows, np.random.default_rng(2), draws=300, taus=(0, 0.2, 0.5))
    between_rows = (10 * 5 + 20 * 7 + 30 * 5 + 40 * 6) / 96
    assert (floor.common, floor.hospitals, floor.larger) == (pytest.approx(2.4), 4, False)
    assert floor.q == pytest.approx(float(rows / between_rows @ (mae - 2.4) ** 2))
    assert floor.figures["highest"].value == 3
    assert set(floor.figures) == {"std", "gini", "highest"}
    assert floor.figures["highest"].floor > 2.4
    low, high = true_error_range(2.4, 0.3)
    assert low == pytest.approx(2.4 * np.exp(-0.045 - 0.588), rel=1e-4)
    assert high == pytest.approx(2.4 * np.exp(-0.045 + 0.588), rel=1e-4)


def test_undefined_errors():
    nothing = error_floor("MAE", [1.0, 2, np.nan], [1, 3, 1], [5, 5, 5], [9, 9, 9], np.random.default_rng(0))
    assert (nothing.hospitals, nothing.figures) == (2, {})
    exact = error_floor("MAE", [1.0] * 4, [1.0] * 4, [5] * 4, [9] * 4, np.random.default_rng(0))
    assert exact.figures == {}, "where no row differs from another there is no chance to compare with"


def test_the_worst_served_have_the_largest_errors():
    rows = np.full(12, 50)
    mae = np.array([1.0] * 10 + [2.0, 3.0])
    floor = error_floor("MAE", mae, 1.2 * mae, rows, rows * np.arange(1, 13), np.random.default_rng(2), draws=200)
    assert floor.figures["worst_decile"].value == 2.5
    assert floor.figures["p90"].value == pytest.approx(np.quantile(mae, 0.9))
    assert floor.figures["worst_decile"].p < 0.05
    assert floor.figures["worst_decile"].true.high > 1, "an error has no upper limit"
    assert floor.shown
    assert floor.sentence().startswith("Hospitals are served differently: the true MAE of 95 % of them")


def test_equal_errors_are_not_called_different_and_unequal_ones_are():
    """Heavy-tailed errors at 20 hospitals: of 60 equal federations at most 7 are called unequal, of 20 unequal 18."""
    rng = np.random.default_rng(3)

    def shown(tau, times):
        count = 0
        for _ in range(times):
            rows = np.exp(rng.normal(4, 1, 20)).astype(int) + 2
            mae, rmse = of_errors(rng, rows, tau, lambda n: rng.standard_t(4, n))
            count += error_floor("MAE", mae, rmse, rows, rows, rng, draws=100, taus=(0, 0.1, 0.3, 0.6)).shown
        return count

    assert shown(0.0, 60) <= 7
    assert shown(0.3, 20) >= 18
