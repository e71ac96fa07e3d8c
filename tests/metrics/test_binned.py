"""Figures from counts of scores in fixed bins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.metrics.binned import BINS, CENTRES, bins_of, figures_of_counts, one_of_each_bin
from raysim.metrics.measures import FIGURES, figures


def counts_of(margins, y) -> np.ndarray:
    return one_of_each_bin(margins, y).sum(axis=0)[None, :]


def test_bins_lie_between_minus_8_and_8():
    assert (CENTRES[0], CENTRES[64], CENTRES[127]) == (-7.9375, 0.0625, 7.9375)
    assert bins_of([-np.inf, -9.0, -7.99, -0.01, 0.0, 0.124, 0.125, 7.99, 8.0, np.inf, np.nan]).tolist() == [
        *(0, 0, 0, 63, 64, 64, 65, 127, 127, 127, 64)
    ]


@given(st.lists(st.tuples(st.integers(0, BINS - 1), st.integers(0, 1)), min_size=1, max_size=40))
def test_of_scores_in_the_middle_of_bins_all_figures_are_exact(rows):
    margins, y = CENTRES[[b for b, _ in rows]], np.array([label for _, label in rows])
    exact = figures(margins, y, [0, len(y)])
    np.testing.assert_allclose(figures_of_counts(counts_of(margins, y)), exact, atol=1e-12)


def test_other_scores_are_within_what_a_bin_holds():
    rng = np.random.default_rng(0)
    margins, y = rng.normal(size=4000), rng.integers(2, size=4000)
    exact, binned = figures(margins, y, [0, 4000])[0], figures_of_counts(counts_of(margins, y))[0]
    assert binned == pytest.approx(exact, abs=2e-3)
    assert (binned[[0, 1, 6, 7]] == exact[[0, 1, 6, 7]]).all()  # a row is called by its bin exactly


def test_noise_without_bias_leaves_no_bias_and_all_stays_in_range():
    """Counts below 0 are kept: clipped ones would count hundreds of rows that nobody has."""
    rng = np.random.default_rng(1)
    y = rng.integers(2, size=2000)
    exact = counts_of(rng.normal(size=2000) + y, y)
    noisy = figures_of_counts(exact + rng.laplace(scale=3.0, size=(4000, 2 * BINS)))
    truth = figures_of_counts(exact)[0]
    for k, name in enumerate(FIGURES):
        if name != "auprc":  # not a ratio of sums
            error = 5 * noisy[:, k].std() / 4000**0.5
            assert noisy[:, k].mean() == pytest.approx(truth[k], abs=error + 2e-3 * truth[k]), name
    small = figures_of_counts(rng.laplace(scale=30.0, size=(500, 2 * BINS)))
    shares = small[:, 2:][:, [0, 1, 3, 4, 5]]
    assert ((shares >= 0) & (shares <= 1) | np.isnan(shares)).all()
    assert (small[:, 0] >= small[:, 1]).all()
    assert (small[:, 1] >= 0).all()


def test_what_is_undefined_is_nan():
    nobody, negatives, both = np.zeros(2 * BINS), np.zeros(2 * BINS), np.zeros(2 * BINS)
    negatives[10], both[10], both[BINS + 70] = 3.0, 1.0, 1.0
    of = dict(zip(FIGURES, figures_of_counts([nobody, negatives, both]).T, strict=True))
    assert np.isnan(of["auroc"]).tolist() == [True, True, False]
    assert np.isnan(of["recall"]).tolist() == [True, True, False]
    assert np.isnan(of["accuracy"]).tolist() == [True, False, False]
    assert of["auroc"][2] == 1.0
    assert of["n"].tolist() == [0, 3, 2]
