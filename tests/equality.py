"""Runs that are to be equal, however they were run."""

from __future__ import annotations

import numpy as np

from raysim.engine.job import Outcome


def same_models(one: Outcome, other: Outcome) -> None:
    """Equal to the last bit: the server's models, what hospitals keep, and every model's figures and sketches."""
    np.testing.assert_array_equal(one.models, other.models)
    assert one.own_models.keys() == other.own_models.keys()
    for hospital, theta in one.own_models.items():
        np.testing.assert_array_equal(theta, other.own_models[hospital])
        assert theta.dtype == other.own_models[hospital].dtype
    assert one.figures.keys() == other.figures.keys()
    for model, figures in one.figures.items():
        np.testing.assert_array_equal(figures, other.figures[model])
    assert one.sketches.keys() == other.sketches.keys()
    for model, sketches in one.sketches.items():
        np.testing.assert_array_equal(sketches, other.sketches[model])
