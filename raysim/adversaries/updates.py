"""Attacks of one hospital that change only its own update ``D [P]``."""

from __future__ import annotations

import numpy as np

from raysim.core.arrays import Floats


def sign_flip(update: Floats, factor: float) -> Floats:
    """Return ``-factor`` times the update."""
    return -factor * update


def scale(update: Floats, factor: float) -> Floats:
    """Return ``factor`` times the update.

    If all weights are equal and the factor is the number of hospitals, the mean of all updates contains this whole
    update (model replacement).
    """
    return factor * update


def gaussian(update: Floats, mean: float, std: float, rng: np.random.Generator) -> Floats:
    """Return normal noise ``[P]`` with the given mean and standard deviation, in the shape of the update."""
    return rng.normal(mean, std, len(update))


def zero(update: Floats) -> Floats:
    """Return zeros, the update of a hospital that does not train (free rider)."""
    return np.zeros_like(update)
