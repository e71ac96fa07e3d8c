"""The weight of an update by its staleness τ, the age of the model from which training started."""

from __future__ import annotations

import numpy as np

from raysim.strategies.base import FederationView, Floats, Ids


def staleness_of(view: FederationView, ids: Ids) -> Floats:
    """Return how often the global model has changed since each of the hospitals ``ids`` received it; 0 means never."""
    if view.staleness is None:
        return np.zeros(len(ids))
    return view.staleness[ids].astype(np.float64)


def polynomial(staleness: Floats, exponent: float) -> Floats:
    """Return the weight ``(1 + staleness)^-exponent`` of each update."""
    return np.asarray((1.0 + staleness) ** -exponent)


def hinge(staleness: Floats, slope: float, start: float) -> Floats:
    """Return each update's weight: 1 up to the staleness ``start``, then ``1 / (slope (staleness - start) + 1)``."""
    return np.asarray(1.0 / (slope * np.maximum(staleness - start, 0.0) + 1.0))
