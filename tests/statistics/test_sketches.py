"""Differences of two models at one hospital, from what it sends: against DeLong's own covariance and a simulation."""

from __future__ import annotations

import numpy as np
import pytest

from raysim.core.streams import stream
from raysim.statistics.discrimination import sketches as module
from raysim.statistics.discrimination.auroc import delong, delong_of_sums, pair_sums, placements
from raysim.statistics.discrimination.sketches import SUMS, correlation, paired_interval, sketches
from raysim.statistics.intervals import Interval, auroc_interval


def hospitals(rng: np.random.Generator, sizes: list[int], shift: float = 0.0) -> tuple[np.ndarray, ...]:
    """Scores of two models ``[2, n]`` with correlation .9, labels and offsets."""
    y = np.concatenate([np.arange(size) % 5 == 0 for size in sizes]).astype(np.int64)
    common, separate = rng.normal(size=len(y)), rng.normal(size=(2, len(y)))
    scores = 0.949 * common + 0.316 * separate + y * np.array([[1.2], [1.2 + shift]])
    return scores, y, np.concatenate([[0], np.cumsum(sizes)])


def test_the_sums_say_delong_s_covariance() -> None:
    scores, y, offsets = hospitals(np.random.default_rng(0), [40, 200, 1000])
    exact = delong(placements(scores, y, offsets)).covariance
    estimates = [
        np.mean(
            [
                (a.astype(float) * b).mean(axis=1)
                for seed in range(60)
                for a, b in [[sketches(placements(scores[k], y, offsets), seed, [3, 4, 5]) for k in (first, second)]]
            ],
            axis=0,
        )
        for first, second in ((0, 0), (0, 1))
    ]
    # 6000 products: a variance is off by 2 %, which is a standard deviation of sqrt(2 / 6000).
    assert np.allclose(estimates[0], exact[:, 0, 0], rtol=0.08)
    assert np.allclose(estimates[1], exact[:, 0, 1], rtol=0.08)


def test_a_hospital_s_numbers_are_its_own_whoever_computes_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, y, offsets = hospitals(np.random.default_rng(1), [30, 50])
    both = sketches(placements(scores[0], y, offsets), 7, [2, 9])
    alone = sketches(placements(scores[0][30:], y[30:], [0, 50]), 7, [9])
    assert both.shape == (2, SUMS)
    assert np.array_equal(both[1:], alone)
    assert not np.allclose(both[1], sketches(placements(scores[0], y, offsets), 7, [2, 8])[1])
    monkeypatch.setattr(module, "ROWS", 7)
    module._kept.cache_clear()
    assert np.allclose(sketches(placements(scores[0], y, offsets), 7, [2, 9]), both, rtol=1e-5)


def test_numbers_that_are_kept_are_those_that_are_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, y, offsets = hospitals(np.random.default_rng(3), [30, 50, 4])
    placed = [placements(scores[k], y, offsets) for k in (0, 1)]
    asked = [(k, seed, ids) for seed in (7, 8) for ids in ([2, 9, 4], [2, 8, 4]) for k in (0, 1)]
    kept = [sketches(placed[k], seed, ids) for k, seed, ids in asked]
    drawn: list[int] = []
    monkeypatch.setattr(module, "KEPT_BYTES", 0)
    monkeypatch.setattr(module, "_kept", drawn.append)
    for (k, seed, ids), sums in zip(asked, kept, strict=True):
        np.testing.assert_array_equal(sketches(placed[k], seed, ids), sums)
    assert drawn == [], "more than is kept"


def test_influences_are_corrected_as_a_sample_variance_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 events by the root of 2, 5 others by that of 5/4."""
    monkeypatch.setattr(module, "KEPT_BYTES", 0)
    monkeypatch.setattr(module, "_drawn", lambda rows, rng: [(slice(0, rows), np.eye(rows, SUMS))])
    y = np.array([0, 1, 0, 0, 1, 0, 0])
    placed = placements(np.array([0.1, 0.5, 0.2, 0.6, 0.7, 0.3, 0.8]), y, [0, 7])
    expected = placed.influence[0] * np.where(placed.event, np.sqrt(2), np.sqrt(5 / 4))
    assert expected.any()
    assert sketches(placed, 0, [0])[0, :7] == pytest.approx(expected, rel=1e-6)


def test_models_that_order_rows_alike_are_fully_correlated() -> None:
    scores, y, offsets = hospitals(np.random.default_rng(2), [60])
    one, other = (sketches(placements(s, y, offsets), 0, [0]) for s in (scores[0], np.exp(scores[0])))
    assert correlation(one, other) == pytest.approx([1.0])


def test_what_is_undefined() -> None:
    y = np.array([1, 0, 0, 0, 1, 1, 0, 0, 1, 1])
    scores = np.array([0.3, 0.1, 0.2, 0.4, 0.9, 0.8, 0.1, 0.2, 0.5, 0.6])
    sums = sketches(placements(scores, y, [0, 4, 8, 10]), 0, [0, 1, 2])
    assert np.isnan(sums[0]).all(), "one event"
    assert (sums[1] == 0).all(), "a perfect AUROC does not vary"
    assert np.isnan(sums[2]).all(), "one class"
    assert np.isnan(correlation(sums, sums)).all()


def test_the_interval_by_hand() -> None:
    first, second = Interval(np.array([0.7]), np.array([0.9])), Interval(np.array([0.6]), np.array([0.85]))
    low, high = paired_interval([0.8], first, [0.75], second, [0.5])
    assert low == pytest.approx(0.05 - np.sqrt(0.01 + 0.01 - 0.01))
    assert high == pytest.approx(0.05 + np.sqrt(0.01 + 0.0225 - 0.015))
    wide = paired_interval([0.8], first, [0.75], second, [np.nan])
    assert wide.low == pytest.approx(0.05 - np.sqrt(0.02)), "an unknown correlation counts as none"


@pytest.mark.parametrize("rows", [15, 60, 300])
def test_the_interval_holds_the_true_difference(rows: int) -> None:
    """Equal models in truth: at most 5 % of hospitals may show a difference, and few events must not break that."""
    scores, y, offsets = hospitals(stream(0, "coverage", rows), [rows] * 400)
    sums = [pair_sums(s, y, offsets) for s in scores]
    sides = []
    for each in sums:
        auroc, variance = delong_of_sums(each)
        interval = auroc_interval(auroc, variance, each.events, each.non_events)
        sides.append((auroc, Interval(interval.low, interval.high)))
    sent = [sketches(placements(s, y, offsets), 5, np.arange(400)) for s in scores]
    low, high = paired_interval(*sides[0], *sides[1], correlation(*sent))
    outside = np.mean((low > 0) | (high < 0))
    assert outside <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 400)
    independent = paired_interval(*sides[0], *sides[1], np.zeros(400))
    assert np.mean(high - low) < 0.75 * np.mean(independent.high - independent.low), "pairing pays"
