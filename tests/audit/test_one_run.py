"""The bound of one run against published values and a direct sum."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from raysim.audit.one_run import Guesses, ceiling, chance, guessed, lower_bound


@pytest.mark.parametrize(
    ("canaries", "made", "right", "delta", "bound"),
    [
        (1000, 100, 100, 1e-5, 3.465376),
        (1000, 100, 95, 1e-5, 2.165176),
        (1000, 200, 150, 1e-5, 0.819973),
        (1000, 1000, 600, 1e-5, 0.297227),
        (208, 208, 208, 1e-3, 3.575198),
        (208, 100, 100, 1e-3, 2.813738),
    ],
)
def test_golden_bounds(canaries, made, right, delta, bound):
    assert lower_bound(Guesses(canaries, made, right), delta) == pytest.approx(bound, abs=2e-6)


def test_the_chance_is_the_sum_that_the_theorem_names():
    assert chance(1.0, Guesses(1000, 100, 95), 1e-5) == pytest.approx(0.0006639144, abs=1e-10)
    G, v, M, delta, q = 12, 9, 20, 1e-3, 1 / (1 + math.exp(-0.7))
    mass = binom.pmf(np.arange(G + 1), G, q)
    worst = max(mass[v - i : v].sum() / i for i in range(1, v + 1))
    expected = mass[v:].sum() + 2 * M * delta * worst
    assert chance(0.7, Guesses(M, G, v), delta) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("made", "right", "delta", "expected"),
    [
        (4, 1, 0.0, 15 / 16),
        (2, 2, 0.01, 1 / 4 + 2 * 3 * 0.01 * 1 / 2),  # one of two with a half, none of two with a quarter: the first
        (2, 1, 0.01, 3 / 4 + 2 * 3 * 0.01 * 1 / 4),
        (2, 1, 0.5, 1.0),
    ],
)
def test_the_chance_of_few_fair_guesses_by_hand(made, right, delta, expected):
    assert chance(0.0, Guesses(3, made, right), delta) == pytest.approx(expected, abs=1e-15)


def test_guesses_that_chance_makes_show_nothing():
    assert lower_bound(Guesses(100, 100, 55), 0.0) == 0.0
    assert lower_bound(Guesses(10, 0, 0), 1e-5) == 0.0
    assert chance(0.0, Guesses(10, 4, 0), 0.0) == 1.0
    with pytest.raises(ValueError, match="5 right of 4 made"):
        lower_bound(Guesses(10, 4, 5), 0.0)


def test_so_many_canaries_can_show_no_more():
    for canaries in (3, 41, 208):
        scores = np.arange(canaries)
        guesses = guessed(scores, scores >= canaries / 2)
        assert guesses.right == guesses.made
        assert ceiling(canaries, 1e-3) == lower_bound(guesses, 1e-3)
    assert ceiling(208, 1e-3) < lower_bound(Guesses(208, 208, 208), 1e-3), "no audit makes so many guesses"


def test_the_highest_are_guessed_in_and_the_lowest_out():
    scores, truth = [0.1, 0.9, 0.8, -1.0, 0.2, 0.0, 0.3, -2.0], [0, 1, 0, 0, 1, 1, 0, 1]
    assert guessed(scores, truth) == Guesses(8, 4, 2)  # in: .9 right, .8 wrong; out: -1 right, -2 wrong


def test_a_bound_exceeds_the_truth_in_one_of_twenty_at_most():
    """Randomised response with a known epsilon is the worst that the theorem allows."""
    epsilon, rng = 1.0, np.random.default_rng(0)
    q, M = 1 / (1 + math.exp(-epsilon)), 300
    right = rng.binomial(M, q, size=2000)
    bounds = [lower_bound(Guesses(M, M, int(v)), 0.0) for v in np.unique(right)]
    above = dict(zip(np.unique(right).tolist(), bounds, strict=True))
    assert 0.01 < np.mean([above[int(v)] > epsilon for v in right]) <= 0.065
