"""Deltas of small and large models added to their sums: the bits of one after the other, and what is checked."""

from __future__ import annotations

import numpy as np
import pytest

from raysim.core.exact import FRACTION_BITS, ExactSum
from raysim.engine.client import sending


class Diverged(Exception):
    """What the check raises."""


def refuse() -> None:
    raise Diverged


def units(groups: np.ndarray, weights: np.ndarray, starts: list[np.ndarray], trained: np.ndarray) -> np.ndarray:
    """What three sums must be: each term is rounded to a multiple of 2^-44, halves to the even one."""
    total = np.zeros((3, trained.shape[1]), np.int64)
    for group, weight, start, end in zip(groups, weights, starts, trained, strict=True):
        term = (end.astype(np.float64) - start.astype(np.float64)) * (weight * 2.0**FRACTION_BITS)
        total[group] += np.rint(term).astype(np.int64)
    return total


def sizes() -> list[int]:
    return [1, 300, sending.TOGETHER - 1, sending.TOGETHER, 2 * sending.TOGETHER, 2 * sending.TOGETHER + 7]


@pytest.mark.parametrize("size", sizes())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_of_models_of_any_size_are_those_of_one_term_after_another(size: int, dtype: type):
    rng = np.random.default_rng(size)
    models = rng.normal(size=(2, size)).astype(dtype)
    rows = [models[0], models[1]]
    starts = [rows[k] for k in (0, 0, 1, 0, 1)]  # the same object for all that start from one row
    trained = np.stack(starts) + rng.normal(size=(5, size)).astype(dtype) * dtype(0.01)
    trained[3] = starts[3] + dtype(300.0)  # too far for the quick rounding with its weight
    groups, weights = np.array([0, 2, 0, 2, 2]), np.array([0.25, 0.5, -3000.3, 0.75, 0.1])
    sums = ExactSum(3, size)
    for _ in range(2):
        sending.add_deltas(sums, groups, weights, starts, trained, 1e6, refuse)
    np.testing.assert_array_equal(sums.units, 2 * units(groups, weights, starts, trained))


@pytest.mark.parametrize("size", [5, sending.TOGETHER + 5])
def test_a_check_is_asked_for_once_where_start_and_end_are_far_out(size: int):
    """Their differences are not, so that the check passes and the sums are exact."""
    start = np.full(size, 900.1, np.float32)
    trained = np.stack([start - np.float32(600.3), start - np.float32(0.25)])
    groups, weights, asked = np.zeros(2, np.int64), np.array([0.5, 0.25]), []
    sums = ExactSum(3, size)
    sending.add_deltas(sums, groups, weights, [start, start], trained, 700.0, lambda: asked.append(None))
    assert len(asked) == 1
    np.testing.assert_array_equal(sums.units, units(groups, weights, [start, start], trained))


@pytest.mark.parametrize("size", [5, sending.TOGETHER + 5])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30, -3e4])
@pytest.mark.parametrize("place", [0, -1])
def test_what_has_diverged_is_checked(size: int, value: float, place: int):
    start = np.zeros(size, np.float32)
    trained = np.zeros((2, size), np.float32)
    trained[1, place] = value
    with pytest.raises(Diverged):
        sending.add_deltas(ExactSum(1, size), np.zeros(2, np.int64), np.ones(2), [start, start], trained, 1e4, refuse)
    with pytest.raises(Diverged):  # and as far from a start that is far out
        sending.add_deltas(ExactSum(1, size), np.zeros(1, np.int64), np.ones(1), [trained[1]], trained[:1], 1e4, refuse)


@pytest.mark.parametrize("size", [5, sending.TOGETHER + 5])
def test_a_delta_is_below_the_limit_or_checked(size: int):
    start, trained = np.zeros(size, np.float32), np.zeros((3, size), np.float32)
    asked: list[None] = []
    for value, times in ((8.0, 1), (-8.0, 2), (np.nextafter(np.float32(8.0), np.float32(0.0)), 2)):
        trained[1, size - 2] = value
        sums, weights = ExactSum(1, size), np.full(3, 0.5)
        sending.add_deltas(sums, np.zeros(3, np.int64), weights, [start] * 3, trained, 8.0, lambda: asked.append(None))
        assert len(asked) == times
        np.testing.assert_array_equal(sums.units, units(np.zeros(3, int), weights, [start] * 3, trained)[:1])


@pytest.mark.parametrize("size", [5, sending.TOGETHER + 5])
def test_who_has_no_weight_changes_no_sum(size: int):
    start = np.zeros(size, np.float32)
    trained = np.stack([start + np.float32(1e30), start + np.float32(1.0)])
    sums = ExactSum(1, size)
    sending.add_deltas(sums, np.zeros(2, np.int64), np.array([0.0, 1.0]), [start, start], trained, np.inf, lambda: None)
    assert (sums.units == 2**FRACTION_BITS).all()


def test_vectors_may_lie_apart_in_memory_and_differ_in_type():
    size = sending.TOGETHER + 5
    rng = np.random.default_rng(0)
    apart, start = rng.normal(size=(2, 2 * size)).astype(np.float32)[:, ::2], rng.normal(size=2 * size)[::2]
    groups, weights, starts = np.array([0, 1]), np.array([0.5, 0.25]), [start, start]
    sums = ExactSum(3, size)
    sending.add_deltas(sums, groups, weights, starts, apart, 1e6, refuse)
    np.testing.assert_array_equal(sums.units, units(groups, weights, starts, apart))


@pytest.mark.parametrize("size", [5, sending.TOGETHER + 5])
def test_vectors_of_another_length_are_refused(size: int):
    trained, one, sums = np.ones((1, size), np.float32), np.ones(1), ExactSum(1, size)
    for ends, start in ((trained[:, 1:], trained[0]), (trained, trained[0, 1:]), (trained, trained), (trained[0], one)):
        with pytest.raises(ValueError, match=f"sums of {size} numbers"):
            sending.add_deltas(sums, np.zeros(1, np.int64), one, [start], ends, 1e4, refuse)
    assert not sums.units.any()
