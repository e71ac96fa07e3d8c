"""Weights of classes: scikit-learn's where there is one, and what does not fit a label."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils.class_weight import compute_class_weight

from raysim.core.errors import ConfigError
from raysim.training.class_weights import balanced, check


def test_balanced_by_hand() -> None:
    np.testing.assert_array_equal(balanced(np.array([6, 2, 0])), [8 / (2 * 6), 8 / (2 * 2), 1.0])


@given(st.lists(st.integers(0, 50), min_size=2, max_size=5).filter(any))
def test_balanced_is_that_of_scikit_learn(counts: list[int]) -> None:
    present = np.flatnonzero(counts)
    expected = compute_class_weight("balanced", classes=present, y=np.repeat(np.arange(len(counts)), counts))
    weights = balanced(np.array(counts))
    np.testing.assert_array_equal(weights[present], expected)
    assert weights @ np.array(counts) == pytest.approx(sum(counts))


def test_what_does_not_fit_the_label() -> None:
    for weights, classes in (("none", 0), ("none", 3), ("balanced", 2), ((1.0, 2.0), 2), ((0.0, 2.0), 2)):
        check(weights, classes)
    for wrong, classes, message in (
        ("balanced", 0, "training.class_weights: balanced is for classes, but this label is a number; set it to none"),
        (
            (1.0, 2.0),
            0,
            "training.class_weights: [1.0, 2.0] is for classes, but this label is a number; set it to none",
        ),
        (
            (1.0, 2.0),
            3,
            "training.class_weights: [1.0, 2.0] has 2 weights, but this label has 3 classes; give one for each",
        ),
        (
            (0.0, 0.0),
            2,
            "training.class_weights: [0.0, 0.0] gives every row the weight 0; give at least one class a weight above 0",
        ),
    ):
        with pytest.raises(ConfigError) as error:
            check(wrong, classes)
        assert str(error.value) == message
