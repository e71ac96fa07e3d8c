"""Attacks of one hospital that change only its own update ``D [P]``."""

from __future__ import annotations

import numpy as np

from raysim.core.arrays import Floats


def sign_flip(update: Floats, factor: float) -> Floats:
    """Return ``-factor * D``."""
    return -factor * update


def scale(update: Floats, factor: float) -> Floats:
    """Return ``factor * D``. With equal weights, and the number of hospitals as the factor, the mean contains
    this hospital's whole ``D`` (model replacement)."""
    return factor * update


def gaussian(update: Floats, mean: float, std: float, rng: np.random.Generator) -> Floats:
    """Return normal noise instead of the update, ``[P]``."""
    return rng.normal(mean, std, len(update))


def zero(update: Floats) -> Floats:
    """Return zeros, the update of a free rider."""
    return np.zeros_like(update)
