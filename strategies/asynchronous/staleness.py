"""How much an update counts that was made from an old model."""

from __future__ import annotations

import numpy as np

from raysim.strategies.base import FederationView, Floats, Ids


def staleness_of(view: FederationView, ids: Ids) -> Floats:
    """How often the global model has changed since hospitals ``ids [H]`` received it; 0 for who has the newest."""
    if view.staleness is None:
        return np.zeros(len(ids))
    return view.staleness[ids].astype(np.float64)


def polynomial(staleness: Floats, exponent: float) -> Floats:
    """``(1 + tau)^-a``."""
    weight: Floats = (1.0 + staleness) ** -exponent
    return weight


def hinge(staleness: Floats, slope: float, start: float) -> Floats:
    """1 up to ``b``, and ``1 / (a (tau - b) + 1)`` beyond."""
    weight: Floats = 1.0 / (slope * np.maximum(staleness - start, 0.0) + 1.0)
    return weight
