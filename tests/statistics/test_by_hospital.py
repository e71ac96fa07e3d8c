"""Calibration by hospital: exact tests against enumeration and scipy, golden numbers, states and seeds."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from raysim.metrics.score_counts import ScoreCounts, score_counts
from raysim.statistics.clinical import by_hospital as module
from raysim.statistics.clinical.by_hospital import (
    calibration_by_hospital,
    calibration_over_seeds,
    events_p,
    events_tails,
)
from raysim.statistics.several import bound

E1_A = np.array([0.9, 0.8, 0.55, 0.4, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.35])
"""Twelve predicted risks, of which the first five are of events."""

EVENTS = (np.arange(12) < 5).astype(np.int64)


def counted(risks: np.ndarray, y: np.ndarray, offsets: list[int]) -> ScoreCounts:
    return score_counts(np.log(risks) - np.log1p(-risks), y, offsets)


def test_twelve_rows_worked_out() -> None:
    ones = np.ones(12, dtype=int)
    assert events_tails(5, E1_A, ones) == pytest.approx((0.4242155879, 0.8020910290), abs=1e-10)
    assert events_p(5, E1_A, ones) == pytest.approx(0.8484311758, abs=1e-10)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 3)), min_size=1, max_size=4), st.data())
@settings(deadline=None)
def test_tails_are_those_of_all_outcomes(bins, data) -> None:
    risks = np.repeat([p for p, _ in bins], [n for _, n in bins])
    observed = data.draw(st.integers(0, len(risks)))
    below = above = 0.0
    for outcome in product((0, 1), repeat=len(risks)):
        chance = float(np.prod(np.where(outcome, risks, 1 - risks)))
        below += chance * (sum(outcome) <= observed)
        above += chance * (sum(outcome) >= observed)
    p, n = zip(*bins, strict=True)
    assert events_tails(observed, p, n) == pytest.approx((below, above), abs=1e-12)


def test_many_rows_of_one_risk_are_binomial_and_very_many_nearly(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = binom.cdf(180, 4000, 0.05), binom.sf(179, 4000, 0.05)
    assert events_tails(180, [0.05], [4000]) == pytest.approx(exact, abs=1e-11)
    monkeypatch.setattr(module, "AT_A_TIME", 3)
    assert events_tails(180, [0.05] * 8, [500] * 8) == pytest.approx(exact, abs=1e-11)
    # The gamma distribution with a continuity correction is near, and is another number.
    assert events_tails(270, [0.05], [6000]) == pytest.approx((binom.cdf(270, 6000, 0.05), 0.96), abs=0.01)
    monkeypatch.setattr(module, "LARGE", 3999)
    near = events_tails(180, [0.05], [4000])
    assert near == pytest.approx(exact, abs=0.01)
    assert abs(near[0] - exact[0]) > 1e-6


@pytest.mark.parametrize(("rows", "share"), [(6000, 2 / 6000), (6000, 0.001), (6000, 0.01), (6000, 0.998), (6000, 0)])
def test_rare_events_among_many_rows_are_not_normal(rows: int, share: float) -> None:
    """By the normal distribution nine events where two are expected have p 4e-6; it is 5e-4."""
    for k in {0, *(int(binom.ppf(q, rows, share)) for q in (1e-4, 0.01, 0.5, 0.99, 1 - 1e-4))}:
        exact = binom.cdf(k, rows, share), binom.sf(k - 1, rows, share)
        for found, true in zip(events_tails(k, [share], [rows]), exact, strict=True):
            assert true - 0.02 <= found
            assert found >= 0.95 * true or true > 0.1
            assert found <= 2 * true + 0.001 * (true > 0)


def test_nothing_is_tested_without_rows_and_certain_risks_are_tested() -> None:
    assert np.isnan(events_p(0, [], []))
    assert np.isnan(events_p(np.nan, [0.5], [1]))
    assert np.isnan(events_p(1, [np.nan], [2]))
    assert events_p(0, [0.0], [3]) == 1
    assert events_p(1, [0.0], [3]) == pytest.approx(0, abs=1e-12)


def test_states_of_hospitals() -> None:
    """Far off; right, many rows; right, few rows; no rows; a prediction that is not a number; one class only."""
    rng = np.random.default_rng(1)
    risks = [np.full(400, 0.1), np.full(3000, 0.4), E1_A, E1_A[:0], np.array([0.5, np.nan]), np.full(5, 0.9)]
    y = [rng.random(400) < 0.3, np.arange(3000) % 5 < 2, EVENTS, EVENTS[:0], [0, 1], np.ones(5)]
    offsets = np.cumsum([0, *map(len, risks)]).tolist()
    found = calibration_by_hospital(counted(np.concatenate(risks), np.concatenate(y).astype(np.int64), offsets))
    assert found.state == ("off", "within", "open", "", "", "open")
    assert found.bound == bound(found.p)
    assert found.bound.named == (0,)
    assert found.bound.of == 4
    assert found.share("within") == 0.25
    # Bins of scores are less than 1 % of the logit wide.
    assert found.p[2] == pytest.approx(0.848, abs=0.01)
    assert found.ratio[2] == pytest.approx(0.8620689655, abs=0.005)
    assert (found.low[2], found.high[2]) == pytest.approx((0.313763, 1.496545), abs=0.005)
    assert np.isnan([found.ratio[3], found.p[3], found.ratio[4], found.p[4], found.observed[4]]).all()
    assert found.high[5] == pytest.approx(found.ratio[5])
    assert found.low[5] < found.high[5]


def test_a_hospital_is_off_by_holm_s_procedure_over_all_of_them() -> None:
    """Nine events where four are expected: p = .031, which is no finding beside another hospital."""
    risks, off, right = np.full(40, 0.1), np.arange(40) < 9, np.arange(40) < 4
    alone = calibration_by_hospital(counted(risks, off.astype(np.int64), [0, 40]))
    y = np.concatenate([off, right]).astype(np.int64)
    both = calibration_by_hospital(counted(np.concatenate([risks, risks]), y, [0, 40, 80]))
    assert both.p[0] == alone.p[0] == pytest.approx(2 * binom.sf(8, 40, 0.1), rel=0.05)
    assert (alone.state[0], both.state[0]) == ("off", "open")


def test_of_several_seeds_the_largest_p_decides() -> None:
    good, bad = E1_A, np.full(12, 0.99)
    both = [
        counted(np.concatenate(pair), np.concatenate([EVENTS, EVENTS]), [0, 12, 24])
        for pair in ((bad, bad), (bad, good))
    ]
    seeds = [calibration_by_hospital(counts) for counts in both]
    assert seeds[0].state == ("off", "off")
    mean = calibration_over_seeds(seeds)
    assert mean.state == ("off", "open")
    assert mean.p[1] == seeds[1].p[1] > seeds[0].p[1]
    assert mean.expected == pytest.approx((seeds[0].expected + seeds[1].expected) / 2)
    assert calibration_over_seeds(seeds[:1]) is seeds[0]
    half = seeds[0]._replace(p=np.array([np.nan, np.nan]), ratio=np.full(2, np.nan), observed=np.full(2, np.nan))
    kept = calibration_over_seeds([half, seeds[1]])
    np.testing.assert_array_equal(kept.p, seeds[1].p)
    assert np.isnan(calibration_over_seeds([half, half]).p).all()


def test_calibrated_hospitals_are_named_in_few_federations() -> None:
    """100 federations of 208 hospitals with a median of 17 rows: perfect risks."""
    rng = np.random.default_rng(2)
    found = []
    for _ in range(100):
        sizes = np.maximum(1, np.exp(rng.normal(np.log(17), 0.8, 208))).astype(int)
        risks = 1 / (1 + np.exp(-rng.normal(-2.6, 0.9, sizes.sum())))
        y = (rng.random(len(risks)) < risks).astype(np.int64)
        found.append(calibration_by_hospital(counted(risks, y, [0, *np.cumsum(sizes).tolist()])))
    assert np.mean([each.bound.at_least > 0 for each in found]) <= 0.05
    assert np.mean([each.bound.named != () for each in found]) <= 0.05
    excluded = [((each.low > 1) | (each.high < 1)).sum() for each in found]
    assert 2 < np.mean(excluded) < 12, "single intervals are no finding"
