"""Figures from counts of scores in fixed bins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.metrics.binned import BINS, CENTRES, bins_of, one_of_each_bin
from raysim.metrics.measures import FIGURES, figures
from raysim.metrics.summed import figures_of_counts


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


def test_counts_that_are_not_whole_by_hand():
    """Rows of class 0 in bin 10 (called 0), and of class 1 in bin 70 (called 1)."""
    counts = np.zeros((5, 2 * BINS))
    counts[:, 10], counts[:, BINS + 70] = [0.5, 0.25, 3.4, -3.0, 0.2], [0.5, 0.5, 1.6, 1.0, 0.25]
    of = dict(zip(FIGURES, figures_of_counts(counts).T, strict=True))
    assert of["n"].tolist() == [1, 1, 5, 0, 0]
    assert of["events"].tolist() == [0, 0, 2, 0, 0]
    assert np.isnan(of["auroc"]).tolist() == [False, True, False, True, True]
    assert np.isnan(of["auprc"]).tolist() == np.isnan(of["recall"]).tolist() == [False, False, False, False, True]
    assert np.isnan(of["log_loss"]).tolist() == np.isnan(of["brier"]).tolist() == [False, False, False, True, True]
    assert of["accuracy"][:3].tolist() == [1, 1, 1]
    halves = np.zeros((1, 2 * BINS))
    halves[0, 10] = 0.5
    assert dict(zip(FIGURES, figures_of_counts(halves)[0], strict=True))["accuracy"] == 1.0


def test_figures_beyond_their_range_are_brought_to_it():
    """Six rows of class 0 and one of class 1 in one bin, minus five and minus a half in another: 1.5 in all."""
    counts = np.zeros((2, 2 * BINS))
    counts[:, 0], counts[:, 127], counts[:, BINS], counts[:, BINS + 127] = (
        *([-5.0, 6.0], [6.0, -5.0], [1.0, -0.5], [-0.5, 1.0]),
    )
    of = dict(zip(FIGURES, figures_of_counts(counts).T, strict=True))
    assert of["log_loss"].tolist() == [np.logaddexp(0.0, 8.0), 0.0]
    assert of["brier"].tolist() == [1.0, 0.0]
    assert of["accuracy"].tolist() == [0.0, 1.0]
    assert of["recall"].tolist() == [0.0, 1.0]


def test_the_precision_of_no_rows_counts_nothing():
    """From the top: 2 events of -1 rows, then 3 of 2: a precision of 0 for two events, and of 1 for the third."""
    counts = np.zeros((1, 2 * BINS))
    counts[0, [100, 90]], counts[0, [BINS + 100, BINS + 90]] = [-3.0, 2.0], [2.0, 1.0]
    assert figures_of_counts(counts)[0, FIGURES.index("auprc")] == pytest.approx(1 / 3)
