"""Attacks of one hospital on its own update ``D [P]``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def sign_flip(update: Floats, factor: float) -> Floats:
    """Return ``-factor * D``."""
    return -factor * update


def scale(update: Floats, factor: float) -> Floats:
    """Return ``factor * D``: with the number of hospitals as the factor, the mean becomes this hospital's model."""
    return factor * update


def gaussian(update: Floats, mean: float, std: float, rng: np.random.Generator) -> Floats:
    """Return noise alone."""
    return rng.normal(mean, std, len(update))


def zero(update: Floats) -> Floats:
    """Return zeros: a free rider."""
    return np.zeros_like(update)
