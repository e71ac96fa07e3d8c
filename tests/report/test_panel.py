"""Pairs of a panel against the definition: rows of one hospital and seed side by side."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from raysim.report.panel import Panel


def table() -> pd.DataFrame:
    """Two models, hospitals and seeds in no order; ``b`` lacks seed 3, hospital "z", and one hospital's figure."""
    rows = [
        ("a", 3, "z", 10, 0.70),
        ("a", 1, "y", 20, 0.71),
        ("a", 1, "x", 30, 0.72),
        ("a", 2, "x", 31, 0.73),
        ("a", 2, "y", 21, np.inf),
        ("b", 2, "y", 99, 0.81),
        ("b", 1, "x", 98, 0.82),
        ("b", 1, "y", 97, np.nan),
        ("c", 5, "x", 10, 0.90),
    ]
    return pd.DataFrame(rows, columns=["strategy", "seed", "hospital", "n_test", "auroc"])


def test_sides_are_of_the_seeds_and_hospitals_that_both_have():
    ours, theirs, rows = Panel.of(table()).sides(("a", "global"), ("b", "global"))
    nan = np.nan
    assert_array_equal(ours, [[0.72, 0.71], [nan, nan]])  # seeds 1 and 2, hospitals x and y; an infinite figure is none
    assert_array_equal(theirs, [[0.82, nan], [nan, 0.81]])
    assert_array_equal(rows, [[30, 20], [nan, 21]])  # of the first model


def test_pairs_without_a_common_seed_or_an_unknown_model_have_no_hospital():
    panel = Panel.of(table().assign(model="own"))
    assert panel.difference(("a", "own"), ("c", "own")).hospitals == 0
    assert panel.difference(("a", "own"), ("a", "global")).hospitals == 0
    assert panel.difference(("a", "own"), ("b", "own")).difference == pytest.approx(0.72 - 0.82)
    assert np.isnan(panel.worst_decile(("a", "own"), ("b", "own"), 0.95)).all()


def test_a_hospital_that_is_there_twice_is_refused():
    twice = pd.concat([table(), table().iloc[:1]])
    with pytest.raises(ValueError, match="two rows of one hospital"):
        Panel.of(twice)
