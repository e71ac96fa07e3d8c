"""What hospitals count of their scores: against their rows, added up, and in any order of processes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.metrics.measures import score_histogram
from raysim.metrics.score_counts import ScoreCounts, in_order, score_counts

SIZES = [4, 0, 1, 7]


def sampled_scores(seed: int, sizes: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    return (
        (3 * rng.standard_normal(n)).astype(np.float32),
        rng.integers(2, size=n),
        np.concatenate([[0], np.cumsum(sizes)]),
    )


def same(a: ScoreCounts, b: ScoreCounts) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@given(st.integers(0, 50), st.lists(st.integers(0, 9), min_size=1, max_size=5))
def test_each_hospital_has_its_own_histogram_and_all_together_that_of_all_rows(seed, sizes):
    z, y, offsets = sampled_scores(seed, sizes)
    counts = score_counts(z, y, offsets, (0.2, 0.5))
    for h in range(len(sizes)):
        mine = slice(offsets[h], offsets[h + 1])
        expected = score_histogram(z[mine], y[mine])
        assert all(np.array_equal(a, b) for a, b in zip(counts.hospital(h), expected, strict=True))
        p = 1 / (1 + np.exp(-z[mine].astype(float)))
        for t, threshold in enumerate((0.2, 0.5)):
            assert counts.at_least[h, t].tolist() == [((p >= threshold) & (y[mine] == c)).sum() for c in (1, 0)]
    together = counts.together()
    assert all(np.array_equal(a, b) for a, b in zip(together.hospital(0), score_histogram(z, y), strict=True))
    assert together.at_least[0].tolist() == counts.at_least.sum(axis=0).tolist()
    assert counts.rows.tolist() == sizes
    assert counts.events.tolist() == [int(y[offsets[h] : offsets[h + 1]].sum()) for h in range(len(sizes))]


def test_what_is_sent_are_a_bin_and_two_counts_and_two_for_each_threshold():
    counts = score_counts([1.0, 1.0, 2.0, -1.0], [1, 0, 0, 1], [0, 3, 3, 4], (0.1, 0.5, 0.9))
    assert counts.scalars.tolist() == [3 * 2 + 6, 6, 3 + 6]
    two = score_counts([1.0, 1.0, 2.0, -1.0], [1, 0, 0, 1], [0, 3, 3, 4], (0.1, 0.5))
    assert two.scalars.tolist() == [3 * 2 + 4, 4, 3 + 4]
    assert counts.positives.tolist() == [1, 0, 1]
    assert counts.negatives.tolist() == [1, 1, 0]


def test_a_probability_of_exactly_the_threshold_is_called():
    counts = score_counts([0.0, -1e-30], [1, 1], [0, 2], (0.5,))
    assert counts.at_least[0, 0].tolist() == [1, 0]


def test_labels_are_0_or_1():
    with pytest.raises(ValueError, match=r"labels 0\.\.2 must be within 0\.\.1"):
        score_counts(np.zeros(2), np.array([0, 2]), np.array([0, 2]))


def test_processes_change_nothing():
    z, y, offsets = sampled_scores(3, SIZES)
    whole = score_counts(z, y, offsets, (0.3,))

    def of(hospitals: list[int]) -> ScoreCounts:
        rows = np.concatenate([np.arange(offsets[h], offsets[h + 1]) for h in hospitals])
        lengths = [SIZES[h] for h in hospitals]
        return score_counts(z[rows], y[rows], np.concatenate([[0], np.cumsum(lengths)]), (0.3,))

    # Actors serve hospitals 2 and 0, and 3 and 1: the order brings them back.
    assert same(in_order([of([2, 0]), of([3, 1])], np.array([1, 3, 0, 2])), whole)


def test_margins_that_are_not_numbers_are_marked_and_never_called():
    counts = score_counts([np.nan, 5.0, 5.0], [1, 1, 1], [0, 2, 3], (0.5,))
    assert counts.broken.tolist() == [True, False]
    assert counts.at_least[:, 0, 0].tolist() == [1, 1]
