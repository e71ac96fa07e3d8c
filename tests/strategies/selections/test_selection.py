"""Who takes part: counts, laws and determinism of selections."""

from __future__ import annotations

import numpy as np
import pytest

from raysim.strategies.base import Draw
from raysim.strategies.selections.sampling import (
    All,
    ByRows,
    InverseSqrt,
    Poisson,
    Uniform,
    cohort_size,
    weighted_sample,
)


def draw(ids: np.ndarray, sizes: np.ndarray, rng: np.random.Generator) -> Draw:
    """A draw of a selection that neither remembers nor asks."""
    return Draw(ids, sizes, rng, None, lambda asked: np.zeros(len(asked)))


def test_the_cohort_of_chips_paper_has_twenty_of_208_hospitals():
    assert cohort_size(208, 0.1, 10) == 20
    assert cohort_size(30, 0.1, 1) == 3  # .1 * 30 is 2.9999999999999996 in floating point
    assert cohort_size(5, 0.1, 10) == 5
    assert cohort_size(50, 0.1, 10) == 10


def test_all_takes_everybody():
    ids = np.array([1, 4, 6])
    assert All().pick(draw(ids, np.array([3, 2, 1]), np.random.default_rng(0))).tolist() == [1, 4, 6]


def test_beyond_131072_hospitals_only_the_chosen_ones_are_sampled():
    for hospitals in (2**17, 2**17 + 1):
        ids, rng = np.arange(10, 10 + hospitals), np.random.default_rng(4)
        drawn = rng.permutation(ids)[:3] if hospitals == 2**17 else ids[rng.choice(hospitals, 3, False, shuffle=False)]
        chosen = Uniform(1e-6, 3).pick(draw(ids, np.ones(hospitals), np.random.default_rng(4)))
        assert chosen.tolist() == sorted(drawn.tolist())


@pytest.mark.parametrize("selection", [Uniform(0.5, 1), InverseSqrt(0.5, 1), ByRows(0.5, 1)])
def test_a_sample_is_ascending_distinct_and_of_the_right_size(selection):
    ids = np.arange(100, 120)
    chosen = selection.pick(draw(ids, np.arange(1, 21), np.random.default_rng(3)))
    assert len(chosen) == 10
    assert (np.diff(chosen) > 0).all()
    assert set(chosen) <= set(ids)


def test_inverse_sqrt_draws_by_the_law_of_its_weights():
    """With one draw the chance of hospital i is n_i^(-1/2) / sum, here 1/2 : 1/4 : 1/4 (n = 1, 4, 4)."""
    sizes, ids = np.array([1, 4, 4]), np.arange(3)
    rng = np.random.default_rng(0)
    draws = [int(InverseSqrt(0.01, 1).pick(draw(ids, sizes, rng))[0]) for _ in range(4000)]
    shares = np.bincount(draws, minlength=3) / 4000
    assert shares == pytest.approx([0.5, 0.25, 0.25], abs=0.03)


def test_by_rows_draws_by_the_law_of_its_weights():
    """With one draw the chance of hospital i is n_i / sum, here 1/9 : 4/9 : 4/9."""
    rng = np.random.default_rng(0)
    draws = [int(ByRows(0.01, 1).pick(draw(np.arange(3), np.array([1, 4, 4]), rng))[0]) for _ in range(4000)]
    assert np.bincount(draws, minlength=3) / 4000 == pytest.approx([1 / 9, 4 / 9, 4 / 9], abs=0.03)


def test_without_replacement_the_second_draw_is_renormalised():
    """P(first 0, then 1) + P(first 1, then 0) for weights .5, .3, .2: .5 * .3/.5 + .3 * .5/.7."""
    rng = np.random.default_rng(1)
    log_weights = np.log([0.5, 0.3, 0.2])
    pairs = [tuple(weighted_sample(np.arange(3), log_weights, 2, rng)) for _ in range(4000)]
    assert np.mean([pair == (0, 1) for pair in pairs]) == pytest.approx(0.5 * 0.6 + 0.3 * 0.5 / 0.7, abs=0.03)


@pytest.mark.parametrize(("fraction", "minimum"), [(0.0, 1), (1.5, 1), (0.5, 0)])
def test_impossible_sizes_are_refused(fraction, minimum):
    for selection in (Uniform, ByRows, InverseSqrt):
        with pytest.raises(ValueError, match=r"fraction|minimum"):
            selection(fraction, minimum)


def test_sampling_probabilities():
    """None where hospitals are not drawn one by one, each by its own coin."""
    assert (All().rate(), Poisson(0.3).rate(), Uniform(0.3, 2).rate()) == (1.0, 0.3, None)
