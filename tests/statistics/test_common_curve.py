"""The common curve: the averages by loops, the normal components by integration, and what stands in when."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from raysim.metrics.measures import hanley_mcneil
from raysim.statistics.discrimination.auroc import PairSums, pair_sums
from raysim.statistics.discrimination.common_curve import _mean, binormal_components, binormal_event_sd, common_curve
from tests.statistics.federations import scored, sums

EVENTS = [4, 1, 7, 2, 12, 3, 5, 30]
NON_EVENTS = [20, 16, 5, 9, 100, 2, 30, 40]


def components(x, z):
    """xi11, xi10, xi01 of one hospital, by the definition over pairs of pairs."""
    psi = (x[:, None] > z).astype(float) + 0.5 * (x[:, None] == z)
    m, n = psi.shape
    apart = [
        psi[j, k] * psi[i, h]
        for j in range(m)
        for i in range(m)
        if i != j
        for k in range(n)
        for h in range(n)
        if h != k
    ]
    squared = np.mean(apart)
    event = np.mean([psi[j, k] * psi[j, h] for j in range(m) for k in range(n) for h in range(n) if h != k])
    non_event = np.mean([psi[j, k] * psi[i, k] for k in range(n) for j in range(m) for i in range(m) if i != j])
    return np.mean(psi**2) - squared, event - squared, non_event - squared


def test_variances_are_those_of_averaged_components():
    events, non_events = EVENTS[:6], [*NON_EVENTS[:4], 12, 2]
    scores, y, cuts = scored(np.random.default_rng(1), events, non_events, 0.75, 1.4)
    scores = np.round(scores, 1)
    each, weights = [], []
    for h in range(6):
        rows = slice(cuts[h], cuts[h + 1])
        x, z = scores[rows][y[rows] == 1], scores[rows][y[rows] == 0]
        if min(len(x), len(z)) > 1:
            each.append(components(x, z))
            weights.append(min(len(x), len(z)) - 1)
    xi = np.average(each, axis=0, weights=weights)
    assert (xi > 0).all()
    curve = common_curve(pair_sums(scores, y, cuts))
    m, n = np.array(events), np.array(non_events)
    wanted = (xi[0] + (n - 1) * xi[1] + (m - 1) * xi[2]) / (m * n)
    assert curve.variance == pytest.approx(wanted)
    assert curve.common == pytest.approx(np.average(curve.auroc, weights=1 / wanted))
    a, b = binormal_components(curve.common, curve.event_sd)
    assert a / (a + b) == pytest.approx(xi[1] / (xi[1] + xi[2]))


def test_the_variance_does_not_depend_on_the_hospitals_own_auroc():
    drawn = sums(np.random.default_rng(0), EVENTS, NON_EVENTS, 0.8)
    curve = common_curve(drawn)
    worse = drawn.first.copy()
    worse[1] = 0  # the hospital with one event, which the components are not taken from
    other = common_curve(drawn._replace(first=worse))
    np.testing.assert_array_equal(curve.variance, other.variance)
    assert curve.auroc[1] != other.auroc[1]


@pytest.mark.parametrize(("t", "sd"), [(0.8, 1.0), (0.8, 1.5), (0.3, 0.6), (0.5, 2.0)])
def test_normal_components_are_their_integrals(t, sd):
    shift = norm.ppf(t) * np.sqrt(1 + sd**2)
    event, _ = quad(lambda e: norm.cdf(shift + sd * e) ** 2 * norm.pdf(e), -9, 9)
    non_event, _ = quad(lambda u: norm.sf((u - shift) / sd) ** 2 * norm.pdf(u), -9, 9)
    assert binormal_components(t, sd) == pytest.approx((event - t * t, non_event - t * t), abs=1e-9)
    assert binormal_event_sd(t, event - t * t, non_event - t * t) == pytest.approx(sd, rel=1e-6)


def test_the_events_spread_stays_within_reason():
    assert binormal_event_sd(0.8, 0.0, 0.0) == 1.0
    assert binormal_event_sd(0.8, 0.1, 0.0) == pytest.approx(3.0)
    assert binormal_event_sd(0.8, 0.0, 0.1) == pytest.approx(1 / 3)


def test_too_few_rows_of_the_rarer_class_fall_back():
    rng = np.random.default_rng(2)
    m = np.array([4, 5, 6, 8, 1, 1])  # 19 beyond the first of each
    few = common_curve(sums(rng, m, [20] * 6, 0.8))
    enough = common_curve(sums(rng, [4, 5, 6, 8, 2, 1], [20] * 6, 0.8))
    assert few.event_sd == 1.0 != enough.event_sd
    rough = np.average(few.auroc, weights=m * 20 / (m + 20))
    assert few.variance == pytest.approx(hanley_mcneil(rough, m, 20))
    assert few.common == pytest.approx(np.average(few.auroc, weights=1 / few.variance))


def test_perfect_hospitals_fall_back_away_from_the_edge():
    curve = common_curve(sums(np.random.default_rng(2), [9] * 8, [20] * 8, 1 - 1e-12))
    assert (curve.auroc == 1).all()
    assert curve.event_sd == 1.0
    assert curve.common == 0.98
    assert (curve.variance > 0).all()


def test_who_is_not_judged_has_no_part():
    rng = np.random.default_rng(3)
    scores, y, cuts = scored(rng, [*EVENTS, 0, 4], [*NON_EVENTS, 9, 9], 0.8)
    scores[-1] = np.nan
    curve, without = (
        common_curve(pair_sums(scores, y, cuts)),
        common_curve(pair_sums(scores[: cuts[-3]], y[: cuts[-3]], cuts[:-2])),
    )
    assert curve.judged.tolist() == [True] * 8 + [False] * 2
    np.testing.assert_array_equal(curve.variance[:8], without.variance)
    assert np.isnan(curve.variance[8:]).all()
    assert (curve.common, curve.event_sd) == (without.common, without.event_sd)


def test_no_hospital_at_all():
    none = common_curve(PairSums(*np.zeros((6, 2), dtype=np.int64)))
    assert np.isnan(none.common)
    assert not none.judged.any()


def test_the_mean_is_over_hospitals_with_an_auroc_and_a_variance():
    nan = np.nan
    assert _mean(np.array([0.8, 0.9, nan, 0.5]), np.array([0.01, nan, 0.01, 0.02])) == pytest.approx(0.7)
    assert _mean(np.array([1.0, 1.0]), np.array([0.01, 0.01])) == 0.98
    assert _mean(np.array([0.0]), np.array([0.01])) == 0.02
    assert np.isnan(_mean(np.array([0.8, nan]), np.array([nan, 0.01])))
