"""Histograms of absolute errors, by hand and on any cut of the rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.metrics.error_counts import error_counts, merged


def test_by_hand():
    """1 and 1.004 share a bin that is 1/128 wide; 1.01 does not; a hospital with a NaN sends nothing."""
    z = np.array([1.0, -1.004, 0.0, 1.01, 2.0, np.nan, 5.0])
    counts = error_counts(z + 4.0, np.full(7, 4.0), [0, 3, 5, 7, 7])
    assert counts.filled.tolist() == [2, 2, 0, 0]
    assert counts.scalars.tolist() == [4, 4, 0, 0]
    assert counts.rows.tolist() == [1, 2, 1, 1]
    assert counts.errors.tolist() == [0, 1 + 1 / 256, 1 + 1 / 256, 1 + 3 / 256, 2 + 2 / 256]


def test_a_hospital_without_a_finite_rmse_sends_nothing_and_a_huge_error_is_kept():
    counts = error_counts([1e200, 1.0, 1e100, 3.0], np.zeros(4), [0, 2, 4])
    assert counts.filled.tolist() == [0, 2]
    assert counts.errors.tolist() == pytest.approx([3, np.finfo(np.float32).max], rel=0.01)


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=60), st.data())
def test_the_parts_of_actors_come_to_the_whole(labels, data):
    """Whatever the cut: each error is within 1 % of its bin's middle, and two actors' counts add up."""
    y = np.array(labels)
    cut = data.draw(st.integers(0, len(y)))
    whole = error_counts(np.zeros(len(y)), y, [0, cut, len(y)])
    errors = np.sort(np.abs(y))
    there = errors > 1e-30
    assert whole.errors[there] == pytest.approx(errors[there], rel=0.01)
    parts = [error_counts(np.zeros(len(part)), part, [0, len(part)]) for part in (y[cut:], y[:cut])]
    both = merged(parts, np.array([1, 0]))
    assert all(np.array_equal(a, b) for a, b in zip(both, whole, strict=True))
