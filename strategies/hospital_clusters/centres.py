"""Initial cluster models. They must differ if only their parameters distinguish the clusters."""

from __future__ import annotations

import numpy as np

from raysim.strategies.base import FederationView, Floats


def models_from_centres(centres: Floats) -> Floats:
    """Return the server's models ``[1 + K, P]`` for the models of K clusters, ``centres [K, P]``. Row 0 is their mean,
    which no hospital uses, and the other rows are the ``centres``."""
    return np.vstack([centres.mean(axis=0), centres])


def initial_centres(view: FederationView, count: int, spread: float) -> Floats:
    """Return the initial models of ``count`` clusters, ``[count, P]``: the common initial model plus ``spread`` times
    standard normal noise, from a random stream for each.

    Equal models would stay equal, because every hospital would choose the first. A single cluster has the common
    initial model without noise.
    """
    if count == 1:
        return view.initial[None, :].copy()
    size = len(view.initial)
    return np.stack([view.initial + spread * view.rng("centre", s).normal(size=size) for s in range(count)])
