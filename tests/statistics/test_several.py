"""Bounds of how many, and names: worked lists, closed testing by brute force, and what holds of any p-values."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.statistics.several import Bound, bound, holm

PS = st.lists(st.one_of(st.floats(0, 1), st.floats(0, 0.1), st.just(1.0)), max_size=8)


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        ([0.001, 0.004, 0.02, 0.03, 0.2, 0.5, 0.7, 0.9], Bound(2, 8, (0, 1))),
        ([0.03, 0.04], Bound(2, 2, ())),
        ([0.01, 0.012, 0.04], Bound(3, 3, (0, 1, 2))),
        ([0.06, 0.5], Bound(0, 2, ())),
        ([], Bound(0, 0, ())),
        ([np.nan, 0.04, np.nan, 0.001], Bound(2, 2, (3, 1))),
        ([1.0, 1.0], Bound(0, 2, ())),
    ],
)
def test_worked_lists(p, expected) -> None:
    assert bound(p) == expected


def test_holm_adjusts_in_order_and_leaves_out_what_is_not_judged() -> None:
    p = [0.004, np.nan, 0.5, 0.001, 0.02, 0.03, 0.2, 0.7, 0.9]
    assert holm(p) == pytest.approx([0.028, np.nan, 1, 0.008, 0.12, 0.15, 0.8, 1, 1], nan_ok=True)


@given(PS, st.sampled_from([0.05, 0.2]))
def test_the_bound_is_that_of_closed_testing(p, alpha) -> None:
    """All sets that Simes' test does not reject, tried one after the other: the largest is what may be null."""

    def rejected(some) -> bool:
        ordered = np.sort(some)
        return bool((ordered <= alpha * np.arange(1, len(some) + 1) / len(some)).any())

    null = max((n for n in range(1, len(p) + 1) for some in combinations(p, n) if not rejected(some)), default=0)
    found = bound(p, alpha)
    assert found.at_least == len(p) - null
    assert set(found.named) == {h for h, each in enumerate(holm(p)) if each <= alpha}


@given(PS, st.integers(0, 7), st.floats(0, 1))
def test_it_names_no_more_than_it_counts_and_smaller_p_never_count_less(p, which, smaller) -> None:
    found = bound(p)
    assert len(found.named) <= found.at_least <= found.of == len(p)
    if which < len(p):
        less = [min(each, smaller) if h == which else each for h, each in enumerate(p)]
        assert bound(less).at_least >= found.at_least


def test_equal_hospitals_are_counted_in_at_most_one_federation_of_twenty() -> None:
    p = np.random.default_rng(0).random((2000, 30))
    # A standard deviation of a share of .05 is .005 here.
    assert np.mean([bound(each).at_least > 0 for each in p]) == pytest.approx(0.05, abs=0.015)
