"""A clipped message is never longer than the clip, and one that is short enough keeps its bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.privacy.clip import clip_factor, clipped, norm

entries = st.lists(st.floats(-1e300, 1e300), min_size=0, max_size=6)


@given(entries, entries, st.floats(1e-6, 1e6))
def test_together_they_are_at_most_the_clip_long(first, second, clip):
    vectors = [np.array(first), np.array(second)]
    shortened = clipped(vectors, clip)
    assert norm(shortened) <= clip * (1 + 1e-15)
    if sum(abs(x) for x in (*first, *second)) <= clip:
        for before, after in zip(vectors, shortened, strict=True):
            assert (before == after).all()


def test_direction_stays_and_length_becomes_the_clip():
    (shortened,) = clipped([np.array([3.0, 4.0])], 1.0)
    assert shortened == pytest.approx([0.6, 0.8], rel=1e-11)
    assert norm([shortened]) < 1.0


def test_what_is_as_long_as_the_clip_keeps_its_bits():
    assert clipped([np.array([3.0, 4.0])], 5.0)[0].tolist() == [3.0, 4.0]
    assert clip_factor(5.0, 5.0) == 1.0
    assert 1.0 - 2e-12 < clip_factor(5.0, 4.0) / 0.8 < 1.0


def test_what_is_too_long_to_be_squared_is_clipped_too():
    first, second, none = clipped([np.array([0.0, -3e300]), np.array([-4e300, 0.0]), np.array([])], 1.0)
    assert first == pytest.approx([0.0, -0.6], rel=1e-11)
    assert second == pytest.approx([-0.8, 0.0], rel=1e-11)
    assert none.shape == (0,)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_leaves_as_zeros(bad):
    first, second = clipped([np.array([1.0, bad]), np.array([2.0])], 1.0)
    assert not first.any()
    assert not second.any()


def test_an_infinite_clip_changes_nothing():
    vector = np.array([1e200, -3.0])
    assert (clipped([vector], np.inf)[0] == vector).all()
