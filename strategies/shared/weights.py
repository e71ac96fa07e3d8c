"""How much each hospital's delta counts in an average."""

from __future__ import annotations

from typing import Literal

import numpy as np

from raysim.strategies.base import Floats, Ids, at_least, one_of, shares

Weighting = Literal["samples", "uniform", "floor"]


def hospital_weights(sizes: Ids, weighting: Weighting, minimum: float) -> Floats:
    """Weights that sum to one over hospitals with ``sizes [H]`` training rows.

    ``samples``: in proportion to rows. ``uniform``: equal. ``floor``: in proportion to rows, but at least ``minimum``
    before they are renormalised, so that small sites are heard (0 is ``samples``; 1 or more is ``uniform``).
    """
    if weighting == "uniform":
        return np.full(len(sizes), 1.0 / max(len(sizes), 1))
    weights = shares(sizes)
    if weighting == "floor":
        weights = np.maximum(weights, minimum)
        weights = weights / weights.sum()
    return weights


def check_weighting(weighting: str, minimum: float) -> None:
    """Raise ``ValueError`` for an unknown weighting or a negative floor."""
    one_of("weights", weighting, ("samples", "uniform", "floor"))
    at_least("minimum_weight", minimum, 0)
