"""Initial models of the clusters of hospitals, and the array of the server's models."""

from __future__ import annotations

import numpy as np

from raysim.strategies.base import FederationView, Floats


def models_from_centres(centres: Floats) -> Floats:
    """Return the mean of the cluster models ``centres [K, P]`` in row 0, and these models below it, ``[1 + K, P]``."""
    return np.vstack([centres.mean(axis=0), centres])


def initial_centres(view: FederationView, count: int, spread: float) -> Floats:
    """Return the initial models of ``count`` clusters, ``[count, P]``: the common initial model plus
    ``spread N(0, I)``.

    Equal models would stay equal, because every hospital would choose the first. For a single cluster no noise is
    added.
    """
    if count == 1:
        return view.initial[None, :].copy()
    size = len(view.initial)
    return np.stack([view.initial + spread * view.rng("centre", s).normal(size=size) for s in range(count)])
