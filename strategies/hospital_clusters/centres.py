"""Starts for cluster models: they must differ where nothing but their parameters tells clusters apart."""

from __future__ import annotations

import numpy as np

from raysim.strategies.base import FederationView, Floats


def models_from_centres(centres: Floats) -> Floats:
    """The models ``[1 + K, P]`` of ``centres [K, P]``: their mean, which no hospital uses, then the centres."""
    return np.vstack([centres.mean(axis=0), centres])


def initial_centres(view: FederationView, count: int, spread: float) -> Floats:
    """``theta^0 + spread * N(0, I)``, a stream for each of ``count`` centres, ``[count, P]``.

    Centres that start equal would stay so, for every hospital would choose the first. A single centre is ``theta^0``.
    """
    if count == 1:
        return view.initial[None, :].copy()
    size = len(view.initial)
    return np.stack([view.initial + spread * view.rng("centre", s).normal(size=size) for s in range(count)])
