"""The floor of errors of real-valued labels: by hand, and in federations drawn with and without differences."""

from __future__ import annotations

import numpy as np
import pytest

from raysim.statistics.chance.inversion import invert
from raysim.statistics.chance.noise_floor import error_floor, true_error_range
from raysim.statistics.chance.simulate import Chance, errors


def of_errors(rng, rows, tau, law):
    """``mae [H]``, ``rmse [H]`` and all errors of hospitals whose errors are ``law``, levels of the spread ``tau``."""
    first = np.cumsum(rows) - rows
    level = np.exp(tau * rng.standard_normal(len(rows)))
    e = np.abs(np.repeat(level, rows) * law(rows.sum()))
    return np.add.reduceat(e, first) / rows, np.sqrt(np.add.reduceat(e * e, first) / rows), e


def test_errors_are_permuted_under_equal_service():
    """Six errors of mean 2, dealt to hospitals of one, two and three rows: of all deals each row's mean is 2."""
    pooled = np.array([0.0, 1, 1, 2, 3, 5])
    (block,) = errors([1, 2, 3], pooled, 1.0, [0], 20_000, np.random.default_rng(1))
    (observed,) = block.observed
    assert (block.true == 2).all()
    assert observed @ [1, 2, 3] == pytest.approx(np.full(20_000, 12.0)), "every deal gives all errors out"
    assert set(np.round(np.unique(observed[:, 0]), 9)) == set(pooled)
    assert np.mean(observed[:, 0] == 1) == pytest.approx(2 / 6, abs=0.02)
    # Without replacement the mean of n of N rows varies by (1 / n) (N - n) / (N - 1) of the rows' variance, 8 / 3.
    assert observed.var(axis=0) == pytest.approx([8 / 3, 8 / 3 / 2 * 4 / 5, 8 / 3 / 3 * 3 / 5], rel=0.05)


def test_truly_different_hospitals_have_log_normal_levels_and_rows_that_vary_as_within_one():
    rng = np.random.default_rng(2)
    pooled = rng.gamma(2.0, 1.5, 4000)
    whole = pooled.std() / pooled.mean()
    kept = list(errors(np.full(200, 20), pooled, whole / 2, [0, 0.4], 60, rng))
    observed, true = (np.concatenate(parts, axis=1) for parts in zip(*kept, strict=True))
    assert true[1].mean() == pytest.approx(pooled.mean(), rel=0.02)
    assert np.log(true[1]).std() == pytest.approx(0.4, rel=0.03)
    assert (observed[0] / true[0]).std() == pytest.approx(whole / np.sqrt(20), rel=0.05)
    assert (observed[1] / true[1]).std() == pytest.approx(whole / 2 / np.sqrt(20), rel=0.05)
    (wide,) = errors([2000, 2000], pooled, 9.0, [0.4], 5, rng)
    together = wide.observed / wide.true
    assert together.mean(axis=2) == pytest.approx(np.ones((1, 5))), "rows never vary more than all together"


def test_there_is_one_error_for_each_row():
    with pytest.raises(ValueError, match="pooled: 3 errors were given for 4 rows"):
        next(errors([1, 3], [1.0, 2, 3], 1.0, [0], 5, np.random.default_rng(0)))


def test_the_floor_of_errors_is_its_definition():
    """Four hospitals by hand: 100 errors in all, each hospital's variance between rows is rmse^2 - mae^2."""
    rows, mae, rmse = np.array([10, 20, 30, 40]), np.array([2.0, 3, 2, 2.5]), np.array([3.0, 4, 3, 3.5])
    every, taus = np.random.default_rng(5).gamma(1.0, 2.4, 100), (0, 0.2, 0.5)
    chance = Chance(lambda: np.random.default_rng(2))
    floor = error_floor("MAE", mae, rmse, every, rows, 5 * rows, chance, draws=300, taus=taus)
    between_rows = (10 * 5 + 20 * 7 + 30 * 5 + 40 * 6) / 96
    assert (floor.common, floor.hospitals, floor.larger) == (pytest.approx(2.4), 4, False)
    assert floor.q == pytest.approx(float(rows / between_rows @ (mae - 2.4) ** 2))
    assert floor.figures["highest"].value == 3
    assert set(floor.figures) == {"std", "gini", "highest"}
    within = np.sqrt(580 / ((rows - 1) @ mae**2 - (5 + 7 + 5 + 6)))
    (block,) = errors(rows, every, within, taus, 300, chance)
    assert floor.figures["highest"].floor == block.observed[0].max(axis=1).mean()
    drawn_q = [[(rows / between_rows) @ (e - rows @ e / 100) ** 2 for e in each] for each in block.observed]
    assert floor.tau == pytest.approx(invert(floor.q, np.array(drawn_q), taus))
    low, high = true_error_range(2.4, 0.3)
    assert low == pytest.approx(2.4 * np.exp(-0.045 - 0.588), rel=1e-4)
    assert high == pytest.approx(2.4 * np.exp(-0.045 + 0.588), rel=1e-4)


def test_undefined_errors():
    nothing = error_floor("MAE", [1.0, 2, np.nan], [1, 3, 1], [1.5] * 10, [5, 5, 5], [9] * 3, np.random.default_rng(0))
    assert (nothing.hospitals, nothing.figures) == (2, {})
    exact = error_floor("MAE", [1.0] * 4, [1.0] * 4, [1.0] * 20, [5] * 4, [9] * 4, np.random.default_rng(0))
    assert exact.figures == {}, "where no row differs from another there is no chance to compare with"
    assert (exact.hospitals, exact.common) == (4, 1.0)
    assert np.isnan([exact.q, exact.p, exact.visible, *exact.tau]).all()
    assert not exact.demonstrated
    assert exact.sentence() == "The spread of MAE between hospitals cannot be estimated."


def test_the_worst_served_have_the_largest_errors():
    rows = np.full(12, 50)
    mae = np.array([1.0] * 10 + [2.0, 3.0])
    rng = np.random.default_rng(2)
    every = rng.gamma(2.0, 0.6, 600)
    floor = error_floor("MAE", mae, 1.2 * mae, every, rows, rows * np.arange(1, 13), rng, draws=200)
    assert floor.figures["worst_decile"].value == 2.5
    assert floor.figures["p90"].value == pytest.approx(np.quantile(mae, 0.9))
    assert floor.figures["worst_decile"].p < 0.05
    assert floor.figures["worst_decile"].true.high > 1, "an error has no upper limit"
    assert floor.demonstrated
    assert floor.sentence().startswith("Hospitals differ beyond chance: the true MAE of 95 % of them")


def test_equal_errors_are_not_called_different_and_unequal_ones_are():
    """Heavy-tailed errors at 20 hospitals: of 60 equal federations at most 7 are called unequal, of 20 unequal 18."""
    rng = np.random.default_rng(3)

    def shown(tau, times):
        count = 0
        for _ in range(times):
            rows = np.exp(rng.normal(4, 1, 20)).astype(int) + 2
            sent = of_errors(rng, rows, tau, lambda n: rng.standard_t(4, n))
            count += error_floor("MAE", *sent, rows, rows, rng, draws=120, taus=(0, 0.1, 0.3, 0.6)).demonstrated
        return count

    assert shown(0.0, 60) <= 7
    assert shown(0.3, 20) >= 18


def test_the_highest_error_of_heavy_tails_is_no_false_alarm():
    """Log-normal errors at 60 small hospitals: of 200 equal federations at most 20 have a highest beyond its floor."""
    rng, count = np.random.default_rng(8), 0
    rows = np.exp(rng.normal(3, 1, 60)).astype(int) + 2
    chance = Chance(lambda: np.random.default_rng(4))
    for _ in range(200):
        sent = of_errors(rng, rows, 0.0, lambda n: rng.lognormal(size=n))
        floor = error_floor("MAE", *sent, rows, rows, chance, draws=120, taus=(0, 0.1, 0.3))
        count += floor.figures["highest"].p <= 0.05
    assert count <= 20
