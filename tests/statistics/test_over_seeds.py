"""A hospital's figure over seeds: by hand, what is undefined, and limits that cannot be passed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t

from raysim.statistics.over_seeds import over_seeds

NAN = np.nan


def test_the_interval_by_hand() -> None:
    mean = over_seeds([0.1, 0.2, 0.3], [0.0, 0.1, 0.1], [0.15, 0.25, 0.45])
    seeds = t.ppf(0.975, 2) ** 2 * 0.01 / 3  # the variance of the three over their number
    below, above = (0.1 + 0.1 + 0.2) / 3, (0.05 + 0.05 + 0.15) / 3
    assert mean.value == pytest.approx(0.2, abs=1e-12)
    assert mean.low == pytest.approx(0.2 - np.sqrt(below**2 + seeds), abs=1e-12)
    assert mean.high == pytest.approx(0.2 + np.sqrt(above**2 + seeds), abs=1e-12)
    assert mean.seeds == 3


def test_a_ratio_has_the_limits_of_its_logarithm_by_hand() -> None:
    """The additive lower limit of these three ratios would be 0: at most 2.8, as little as nothing."""
    value, low, high = np.array([1.0, 1.1, 2.0]), np.array([0.6, 0.7, 1.3]), np.array([1.6, 1.7, 2.9])
    ratio, plain = (over_seeds(value, low, high, within=(0.0, np.inf), ratio=each) for each in (True, False))
    seeds = t.ppf(0.975, 2) ** 2 * np.log(value).var(ddof=1) / 3
    below, above = np.log(value / low).mean(), np.log(high / value).mean()
    assert (plain.low, ratio.value) == (0.0, value.mean())
    assert ratio.low == pytest.approx(value.mean() / np.exp(np.sqrt(below**2 + seeds)), rel=1e-12)
    assert ratio.high == pytest.approx(value.mean() * np.exp(np.sqrt(above**2 + seeds)), rel=1e-12)


def test_a_seed_without_an_event_or_alone_has_no_logarithm() -> None:
    value, low, high = [[0.0, 0.8, 0.5], [0.4, NAN, 0.6]], [[0.0, 0.3, 0.2], [0.1, NAN, 0.3]], [[0.9, 1.7, 1.0]] * 2
    which = [True, True, False]
    ratio, plain = (over_seeds(value, low, high, within=(0.0, 2.0), ratio=each) for each in (which, False))
    np.testing.assert_array_equal(ratio, plain)


def test_seeds_that_do_not_define_a_figure_take_no_part() -> None:
    value = [[0.1, 0.5, NAN, 0.2], [0.3, NAN, NAN, 0.4]]
    low = [[0.0, 0.4, NAN, NAN], [0.2, NAN, NAN, 0.3]]
    high = [[0.2, 0.7, NAN, NAN], [0.4, NAN, NAN, 0.6]]
    mean = over_seeds(value, low, high)
    assert mean.seeds.tolist() == [2, 1, 0, 2]
    np.testing.assert_allclose(mean.value, [0.2, 0.5, NAN, 0.3], atol=1e-12)
    seeds = t.ppf(0.975, 1) ** 2 * 0.02 / 2
    reach = [np.sqrt(np.square(r) + s) for r, s in ((0.1, seeds), (0.1, 0.0), (NAN, 0.0), (0.1, seeds))]
    np.testing.assert_allclose(mean.low, mean.value - reach, atol=1e-12)
    np.testing.assert_allclose(mean.high[1], 0.7, atol=1e-12)


def test_a_seed_with_one_limit_alone_has_none() -> None:
    seeds = t.ppf(0.975, 1) ** 2 * 0.02 / 2
    for low, high in (([NAN, 0.3], [0.5, 0.6]), ([0.1, 0.3], [NAN, 0.6])):
        mean = over_seeds([0.2, 0.4], low, high)
        assert mean.low == pytest.approx(0.3 - np.sqrt(0.1**2 + seeds), abs=1e-12)
        assert mean.high == pytest.approx(0.3 + np.sqrt(0.2**2 + seeds), abs=1e-12)


def test_a_seed_without_a_figure_spreads_nothing() -> None:
    two, three = (over_seeds(v, v, v) for v in ([1.0, 3.0], [1.0, NAN, 3.0]))
    assert (three.value, three.low, three.high) == (two.value, two.low, two.high)


def test_one_seed_keeps_its_interval_and_limits_stay_within() -> None:
    one = over_seeds([[0.9, 0.5]], [[0.7, 0.4]], [[1.0, 0.6]], within=(0.0, 1.0))
    np.testing.assert_allclose((one.low, one.high), [(0.7, 0.4), (1.0, 0.6)], atol=1e-12)
    two = over_seeds([0.9, 0.5], [0.7, 0.4], [1.0, 0.6], within=(0.0, 1.0))
    assert (two.low, two.high) == (0.0, 1.0)


def test_limits_too_far_for_a_float_are_infinite_without_a_warning() -> None:
    with np.errstate(over="raise"):
        far = over_seeds([1e200, 0.0], [0.0, 0.0], [1e308, 0.0])
    assert (far.low, far.high) == (-np.inf, np.inf)


def test_the_mean_of_seeds_covers_the_true_difference_where_all_test_the_same_patients() -> None:
    """Seeds that share their patients narrow nothing: with 40 patients and 5 seeds, 2000 draws."""
    rng = np.random.default_rng(0)
    patients = rng.normal(0, 1, (2000, 40))
    seeds = patients.mean(axis=1) + rng.normal(0, 0.05, (5, 2000))
    reach = 1.96 / np.sqrt(40)
    mean = over_seeds(seeds, seeds - reach, seeds + reach)
    covered = float(((mean.low <= 0) & (mean.high >= 0)).mean())
    assert 0.94 <= covered <= 0.99
    narrow = 1.96 / np.sqrt(40 * 5)
    assert float((np.abs(mean.value) <= narrow).mean()) < 0.75, "as if the seeds were independent, it would not"
