"""The interval of a run's mean over hospitals: by hand, for one hospital, and how often it holds the true mean."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from raysim.statistics.intervals import auroc_interval
from raysim.statistics.mean_interval import mean_interval


def test_by_hand() -> None:
    # Mean .75; half of the widths .1 and .2, shares 3/4 and 1/4.
    low, high = mean_interval([0.8, 0.6, np.nan], [0.7, 0.3, 0.0], [0.9, 0.7, 1.0], [30, 10, 50], within=(0.0, 1.0))
    reach = np.hypot(0.75 * 0.1, 0.25 * 0.2)
    assert (low, high) == pytest.approx((0.75 - reach, 0.75 + reach), abs=1e-15)
    # Hospitals of a single row count, those of none do not.
    low, high = mean_interval([0.8, 0.6, 0.1], [0.7, 0.3, 0.0], [0.9, 0.7, 1.0], [1, 1, 0], within=(0.0, 1.0))
    reach = np.hypot(0.5 * 0.1, 0.5 * 0.2)
    assert (low, high) == pytest.approx((0.7 - reach, 0.7 + reach), abs=1e-15)


def test_ends() -> None:
    assert mean_interval([0.9], [0.6], [1.0], [7], within=(0.0, 1.0)) == pytest.approx((0.7, 1.0))
    for value, low in (([np.nan], [0.1]), ([0.5], [np.nan])):
        assert np.isnan(mean_interval(value, low, [1.0], [7], within=(0.0, 1.0))).all()
    assert np.isnan(mean_interval([0.5], [0.4], [0.6], [0], within=(0.0, 1.0))).all(), "no rows are judged"


def test_it_holds_the_true_mean_of_hospitals_with_few_events() -> None:
    rng, hospitals, draws = np.random.default_rng(3), 8, 300
    rows, shift = rng.integers(40, 160, hospitals), 1.3 + 0.4 * rng.normal(size=hospitals)
    true, held = norm.cdf(shift / np.sqrt(2)), 0
    for _ in range(draws):
        events = np.clip(rng.binomial(rows, 0.1), 1, None)
        auroc, variance = np.array(
            [delong(rng.normal(d, size=m), rng.normal(size=n - m)) for d, m, n in zip(shift, events, rows, strict=True)]
        ).T
        low, high = auroc_interval(auroc, variance, events, rows - events)
        ends = mean_interval(auroc, low, high, rows, within=(0.0, 1.0))
        held += ends.low <= rows @ true / rows.sum() <= ends.high
    assert 0.92 <= held / draws <= 0.99


def delong(events: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """An AUROC and its variance from all pairs; NaN for one event."""
    above = (events[:, None] > others).astype(float)
    if len(events) < 2:
        return float(above.mean()), float("nan")
    variance = above.mean(1).var(ddof=1) / len(events) + above.mean(0).var(ddof=1) / len(others)
    return float(above.mean()), float(variance)
