"""Runs that are to be equal, however they were played."""

from __future__ import annotations

import numpy as np

from raysim.engine.job import Outcome


def same_models(one: Outcome, other: Outcome) -> None:
    """Equal to the last bit: the server's models, what hospitals keep, and every model's figures and sketches."""
    np.testing.assert_array_equal(one.models, other.models)
    assert one.kept.keys() == other.kept.keys()
    for hospital, theta in one.kept.items():
        np.testing.assert_array_equal(theta, other.kept[hospital])
        assert theta.dtype == other.kept[hospital].dtype
    assert one.figures.keys() == other.figures.keys()
    for model, figures in one.figures.items():
        np.testing.assert_array_equal(figures, other.figures[model])
    assert one.sketches.keys() == other.sketches.keys()
    for model, sketches in one.sketches.items():
        np.testing.assert_array_equal(sketches, other.sketches[model])
