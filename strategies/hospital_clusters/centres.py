"""Initial cluster models. They must differ if only their parameters distinguish the clusters."""

from __future__ import annotations

import numpy as np

from raysim.strategies.base import FederationView, Floats


def models_from_centres(centres: Floats) -> Floats:
    """Return the models ``[1 + K, P]`` for ``centres [K, P]``: first the mean of the centres, which no hospital uses,
    then the centres."""
    return np.vstack([centres.mean(axis=0), centres])


def initial_centres(view: FederationView, count: int, spread: float) -> Floats:
    """Return ``count`` centres ``theta^0 + spread * N(0, I)``, each with its own random stream, ``[count, P]``.

    Equal centres would stay equal, because every hospital would choose the first. A single centre is ``theta^0``.
    """
    if count == 1:
        return view.initial[None, :].copy()
    size = len(view.initial)
    return np.stack([view.initial + spread * view.rng("centre", s).normal(size=size) for s in range(count)])
