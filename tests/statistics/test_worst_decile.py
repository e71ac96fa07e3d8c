"""The difference of worst deciles: hospitals drawn again, and what seeds add."""

from __future__ import annotations

import numpy as np
import pytest

from raysim.metrics.equity import paired_interval
from raysim.report.panel import Panel
from raysim.statistics.differences.worst_decile import worst_decile_difference
from tests.report.test_answer import frames

H = 40
ROWS = np.full(H, 10.0)


def values(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.5, 0.9, H)


def test_of_one_seed_it_is_the_bootstrap_of_hospitals():
    a, b = values(1), values(2)
    alone = paired_interval(a, b, ROWS, np.random.default_rng(3), figure="worst_decile", draws=500)
    assert worst_decile_difference(a, b, ROWS, np.random.default_rng(3), draws=500) == pytest.approx(alone)


@pytest.mark.parametrize(
    ("shifts", "t", "variance"), [([0.0, 0.03, 0.06], 4.302653, 0.0009 / 3), ([0.0, 0.06], 12.706205, 0.0018 / 2)]
)
def test_seeds_that_move_all_hospitals_widen_it_by_their_own_variance(shifts, t, variance):
    """The variance is that of the shifts' mean, and t has a degree of freedom less than there are seeds."""
    a, b, seeds = values(1), values(2), len(shifts)
    moved = a + np.array(shifts)[:, None]
    low, high = worst_decile_difference(moved, [b] * seeds, [ROWS] * seeds, np.random.default_rng(3), draws=500)
    still = paired_interval(a, b, ROWS, np.random.default_rng(3), figure="worst_decile", draws=500)
    point = float(np.sort(a)[:4].mean() - np.sort(b)[:4].mean())
    reach = t**2 * variance
    assert low == pytest.approx(point + 0.03 - np.sqrt((point - still[0]) ** 2 + reach), abs=1e-6)
    assert high == pytest.approx(point + 0.03 + np.sqrt((still[1] - point) ** 2 + reach), abs=1e-6)


def test_a_seed_without_any_hospital_is_none_and_smaller_may_be_better():
    a, b = np.stack([values(1), values(3)]), np.stack([values(2), values(4)])
    rows = np.stack([ROWS, ROWS])
    limits = worst_decile_difference(a, b, rows, np.random.default_rng(3), draws=200)
    undefined = [np.vstack([x, np.full(H, np.nan)]) for x in (a, b)]
    assert worst_decile_difference(*undefined, np.vstack([rows, ROWS]), np.random.default_rng(3), draws=200) == limits
    turned = worst_decile_difference(-b, -a, rows, np.random.default_rng(3), draws=200, larger=False)
    assert turned == pytest.approx(limits)
    assert np.isnan(worst_decile_difference([0.5], [0.6], [3], np.random.default_rng(0))).all()


def test_hospitals_of_a_single_row_count_and_those_of_none_do_not():
    a, b = np.stack([values(1), values(3)]), np.stack([values(2), values(4)])
    ones = np.ones((2, H))
    limits = worst_decile_difference(a, b, ones, np.random.default_rng(3), draws=200)
    assert limits == worst_decile_difference(a, b, 10 * ones, np.random.default_rng(3), draws=200)
    more = [np.hstack([x, np.full((2, 1), low)]) for x, low in ((a, 0.0), (b, 0.4), (ones, 0.0))]
    assert worst_decile_difference(*more, np.random.default_rng(3), draws=200) == limits


def test_a_claim_of_a_comparison_counts_seeds():
    """All hospitals are .02 to .08 apart in the seeds: drawing hospitals again would show it, three seeds do not."""
    _, hospitals = frames({"fedavg": 0.8, "chip": 0.8}, hospitals=40, noise=0.0)
    shift = hospitals["seed"].map({0: 0.02, 1: 0.05, 2: 0.08}) * (hospitals["strategy"] == "chip")
    moved = hospitals.assign(auroc=hospitals["auroc"] + shift)
    low, high = Panel.of(moved).worst_decile(("chip", "global"), ("fedavg", "global"), 0.95)
    assert low < 0 < high
