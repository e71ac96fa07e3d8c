"""What is kept of a composition is what the library dp-accounting keeps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import common

from raysim.privacy import compositions

LIBRARY = common.compute_self_convolve_bounds


def refused(*_: Any) -> tuple[int, int]:
    raise AssertionError("the library is asked")


@pytest.mark.parametrize("count", [1, 2, 30, 2000])
@pytest.mark.parametrize("length", [2, 37, 5000])
def test_bounds_are_the_librarys(length: int, count: int):
    middle = np.arange(length) / length - 0.4
    for probabilities in (np.exp(-200 * middle**2), 1.0 / (1 + np.arange(length)) ** 2, np.eye(length)[length // 2]):
        probabilities = probabilities / probabilities.sum()
        for mass in (1e-15, 1e-3):
            expected = LIBRARY(probabilities, count, mass)
            assert compositions.bounds(LIBRARY, probabilities, count, mass) == expected
            assert compositions.bounds(LIBRARY, probabilities.tolist(), count, mass) == expected
            if length == 5000 and probabilities.max() < 1:
                assert compositions.bounds(refused, probabilities, count, mass) == expected


def test_both_bounds_by_hand():
    """One place of a hundred: all sums are one power, and all but the logarithm of the mass cancels."""
    probabilities = np.zeros(100)
    probabilities[50] = 1.0
    beyond = math.log(2 / 1e-3) * 100 / 20
    assert compositions.bounds(refused, probabilities, 3, 1e-3) == (
        math.floor(150 - beyond),
        math.ceil(150 + beyond),
    )


def test_the_library_is_asked_where_a_bound_may_be_the_next_number():
    calls: list[tuple[Any, ...]] = []

    def library(*arguments: Any) -> tuple[int, int]:
        calls.append(arguments)
        return 4, 7

    lone, half = np.ones(1), np.array([0.5, 0.5])
    exact = 2 / math.exp(10.0)  # the limit of order 20, and of five more, is a whole number
    assert compositions.bounds(library, np.eye(100)[50], 3, exact) == (4, 7)
    assert compositions.bounds(library, half, 2, 0) == (4, 7)
    assert compositions.bounds(library, half, 2, 1e-3, [1.0]) == (4, 7)
    assert compositions.bounds(library, -half, 2, 1e-3) == (4, 7), "of no number"
    assert compositions.bounds(library, [], 2, 1e-3) == (4, 7)
    assert len(calls) == 5
    assert calls[2][1:] == (2, 1e-3, [1.0])
    assert compositions.bounds(refused, lone, 2, 1e-3) == LIBRARY(lone, 2, 1e-3)


def test_the_library_is_left_as_it_was():
    composing = compositions.quick()
    with pytest.raises(KeyError), composing:
        raise KeyError
    with compositions.quick():
        assert common.compute_self_convolve_bounds is not LIBRARY
    assert common.compute_self_convolve_bounds is LIBRARY
