"""Initial cluster models. They must differ if only their parameters distinguish the clusters."""

from __future__ import annotations

import numpy as np

from raysim.strategies.base import FederationView, Floats


def models_from_centres(centres: Floats) -> Floats:
    """Return the server's models for K clusters, ``[1 + K, P]``. Row 0, which no hospital uses, is the mean of the
    cluster models. The other rows are the cluster models, ``centres [K, P]``."""
    return np.vstack([centres.mean(axis=0), centres])


def initial_centres(view: FederationView, count: int, spread: float) -> Floats:
    """Return the initial models of ``count`` clusters, ``[count, P]``. Each is the common initial model plus ``spread``
    times standard normal noise, from a random stream of its own.

    Equal models would stay equal, because every hospital would choose the first. A single cluster has the common
    initial model without noise.
    """
    if count == 1:
        return view.initial[None, :].copy()
    size = len(view.initial)
    return np.stack([view.initial + spread * view.rng("centre", s).normal(size=size) for s in range(count)])
