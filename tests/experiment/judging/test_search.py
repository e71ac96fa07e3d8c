"""What is left of the best of many models that were tried."""

from __future__ import annotations

import numpy as np
import pytest

from raysim.statistics.differences.paired import Paired, paired
from raysim.statistics.differences.search import adjusted_for, searched, selection_gain


def pair(difference: float, hospitals: int = 11) -> Paired:
    """A difference with a standard error of 1 and ten degrees of freedom."""
    return Paired(difference, hospitals, 2, 1.0, float("nan"), 0.0, 10.0)


@pytest.mark.parametrize(("tried", "t"), [(1, 2.228139), (5, 3.169273), (20, 4.004530), (100, 5.048973)])
def test_the_first_interval_is_as_wide_as_the_number_tried_asks(tried: int, t: float) -> None:
    limits = adjusted_for([pair(0.5)], tried)[0]
    assert limits.high - 0.5 == pytest.approx(t, abs=1e-6)


def test_later_ones_count_one_candidate_less_each() -> None:
    first, second, third = adjusted_for([pair(9.0), pair(-8.0), pair(1.0)], 20)
    assert first.high - 9.0 == pytest.approx(4.004530, abs=1e-6)
    assert second.low + 8.0 < -3.9
    assert second.high + 8.0 < 4.004530
    # The third is not demonstrated; its level is that of the candidates left.
    assert third.low < 0 < third.high


def test_the_best_of_equals_gains_by_being_chosen() -> None:
    rng = np.random.default_rng(1)
    gains, biases = [], []
    for _ in range(200):
        figures = rng.normal(0, 0.03, (20, 20)) + rng.normal(0, 0.008, (1, 20))
        rows = np.full(20, 100.0)
        biases.append(figures.mean(axis=1).max())
        gains.append(selection_gain(figures, rows))
    # About two thirds of the bias is removed.
    assert 0.4 < np.mean(gains) / np.mean(biases) < 1.0
    one = np.concatenate([np.full((1, 20), 0.5), rng.normal(0, 0.01, (3, 20))])
    assert selection_gain(one, rows) == pytest.approx(0.0, abs=1e-12)


def test_the_searched_estimate_is_the_best_ones_less_its_gain() -> None:
    rng = np.random.default_rng(2)
    rows = np.full(12, 50.0)
    figures = rng.normal(0.005, 0.02, (6, 12))
    pairs = [paired(each[None], np.zeros((1, 12)), rows[None]) for each in figures]
    found = searched(pairs, figures, rows, 30)
    assert found.best == int(figures.mean(axis=1).argmax())
    assert found.estimate == pytest.approx(figures.mean(axis=1).max())
    assert found.corrected == pytest.approx(found.estimate - selection_gain(figures, rows))
    assert found.corrected < found.estimate


def test_hospitals_that_lack_a_figure_and_single_models_gain_nothing() -> None:
    figures = np.array([[0.1, np.nan], [0.2, 0.3]])
    assert selection_gain(figures, np.ones(2)) == 0
    assert selection_gain(np.ones((1, 5)), np.ones(5)) == 0
