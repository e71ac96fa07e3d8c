"""The mean over hospitals and their spread: from the estimators that are tested alone, and the rules for few."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

from raysim.statistics.discrimination.common_curve import common_curve
from raysim.statistics.meta_analysis import between_hospitals as between
from raysim.statistics.meta_analysis.between_hospitals import posterior, shrunken_auroc
from tests.statistics.federations import sums

EVENTS, NON_EVENTS = [20, 1, 60, 30, 12, 0, 25], [80, 16, 90, 30, 70, 9, 300]
TRUE = [0.9, 0.8, 0.6, 0.75, 0.95, 0.5, 0.7]


def test_shrunken_aurocs_are_the_posterior_on_the_common_variances():
    curve = common_curve(sums(np.random.default_rng(0), EVENTS, NON_EVENTS, TRUE))
    shrunken, low, high = shrunken_auroc(curve)
    each = posterior(curve.auroc[curve.judged], curve.variance[curve.judged])
    assert shrunken[curve.judged] == pytest.approx(each.mean)
    reach = 1.959963984540054 * each.sd
    assert high[curve.judged] == pytest.approx(np.minimum(each.mean + reach, 1))
    assert low[curve.judged] == pytest.approx(each.mean - reach)
    assert np.isnan([shrunken[5], low[5], high[5]]).all()


@pytest.mark.parametrize(("hospitals", "defined"), [(2, False), (3, True)])
def test_few_hospitals(hospitals, defined):
    curve = common_curve(sums(np.random.default_rng(1), [20] * hospitals, [60] * hospitals, 0.8))
    assert (np.isfinite(shrunken_auroc(curve)) == defined).all()


def test_the_posterior_is_the_integral_over_spreads():
    y, v = np.array([0.9, 0.7, 0.82, 0.6]), np.array([0.004, 0.01, 0.001, 0.02])

    def density(tau):
        w = 1 / (v + tau**2)
        mu = w @ y / w.sum()
        # The variance is uniform beforehand, and changes by twice the spread where the spread changes by one.
        return 2 * tau * np.sqrt(np.prod(w) / w.sum()) * np.exp(-0.5 * w @ (y - mu) ** 2)

    def centre(tau, i):
        """The empirical-Bayes estimate at a spread (Morris 1983)."""
        w, weight = 1 / (v + tau**2), tau**2 / (tau**2 + v)
        return ((w @ y / w.sum()) + weight * (y - w @ y / w.sum()))[i]

    def variance(tau, i):
        w, weight = 1 / (v + tau**2), tau**2 / (tau**2 + v)
        return (v * weight + (1 - weight) ** 2 / w.sum())[i]

    total, _ = quad(density, 0, 0.5)
    shrunken = posterior(y, v)
    for i in range(4):
        mean = quad(lambda tau, i=i: density(tau) * centre(tau, i), 0, 0.5)[0] / total
        square = quad(lambda tau, i=i: density(tau) * (variance(tau, i) + centre(tau, i) ** 2), 0, 0.5)[0] / total
        assert shrunken.mean[i] == pytest.approx(mean, rel=1e-4)
        assert shrunken.sd[i] == pytest.approx(np.sqrt(square - mean**2), rel=1e-3)

    def further(tau, power):
        w = 1 / (v + tau**2)
        mu = w @ y / w.sum()
        return density(tau) * (mu if power == 1 else tau**2 + 1 / w.sum() + mu**2)

    mean, square = (quad(further, 0, 0.5, args=(power,))[0] / total for power in (1, 2))
    assert shrunken.further_mean == pytest.approx(mean, rel=1e-4)
    assert shrunken.further_sd == pytest.approx(np.sqrt(square - mean**2), rel=1e-3)


def test_shrunken_estimates_lie_between_the_mean_and_their_own():
    y, v = np.array([0.9, 0.7, 0.82, 0.6]), np.array([0.004, 0.01, 0.001, 0.02])
    shrunken = posterior(y, v)
    assert shrunken.mean.std() < y.std()
    assert abs(y - shrunken.mean).argmax() == 3  # the least certain moves most
    assert (shrunken.sd < np.sqrt(v)).all()


def test_the_posterior_of_many_hospitals_that_are_sure_is_what_they_say():
    """Their weights are beyond what a number can be."""
    y = np.random.default_rng(5).uniform(0.5, 0.9, 2000)
    np.testing.assert_allclose(posterior(y, np.full(2000, 1e-6)).mean, y, atol=1e-4)
    sd = posterior([0.5, 0.6], [0, 0]).sd
    assert (sd < 1e-7).all()


def test_deviations_are_the_same_wherever_estimates_lie():
    """All numbers are moved without rounding."""
    rng = np.random.default_rng(6)
    y, v = rng.integers(0, 16, 64) * 2.0**-26, rng.integers(1, 16, 64) * 2.0**-56
    near, far = posterior(y, v), posterior(y + 0.75, v)
    np.testing.assert_allclose(far.sd, near.sd, rtol=1e-8)
    assert far.further_sd == pytest.approx(near.further_sd, rel=1e-8)
    assert posterior([0.1, 0.9, 0.5], np.full(3, 1e-18)).sd == pytest.approx(np.full(3, 1e-9), rel=0.01)


def test_hospitals_may_be_taken_a_few_at_a_time(monkeypatch):
    rng = np.random.default_rng(4)
    y, v = rng.uniform(0.5, 0.9, 23), rng.uniform(1e-3, 2e-2, 23)
    whole = posterior(y, v)
    for at_once in (1, 7, 22, 23):
        monkeypatch.setattr(between, "AT_ONCE", at_once)
        for a, b in zip(posterior(y, v), whole, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_the_posterior_of_hospitals_that_are_surely_far_apart_is_what_they_say():
    y = np.array([0.1, 0.9, 0.5])
    shrunken = posterior(y, np.full(3, 1e-7))
    assert shrunken.mean == pytest.approx(y, abs=1e-5)
    assert shrunken.sd == pytest.approx(np.full(3, np.sqrt(1e-7)), rel=0.01)
    assert shrunken.further_mean == pytest.approx(0.5, abs=1e-6)
