"""Rules that look for a centre or bound what each update can move: geometric median, centred clipping, norm bound."""

from __future__ import annotations

import numpy as np

from raysim.robust.rule import Aggregate, Floats, distances_to, uniform

PASSES, MOVE = 1000, 1e-10
"""The geometric median is looked for in so many passes at most, until it moves by this share of the middle distance."""


def geometric_median(
    updates: Floats,
    weights: Floats | None = None,
    *,
    nu: float = 1e-6,
    passes: int = PASSES,
    start: Floats | None = None,
) -> Aggregate:
    """The point with the least sum of distances to the updates (smoothed Weiszfeld), from their weighted mean or
    ``start [P]``. ``nu`` is the distance below which an update pulls no more strongly.
    """
    mass = np.ones(len(updates)) if weights is None else weights
    first = updates[0]
    apart, shares = updates - first, mass / mass.sum()
    point: Floats = first + shares @ apart if start is None else start
    distances = distances_to(point, updates)
    for _ in range(passes):
        pull = mass / np.maximum(nu, distances)
        shares = pull / pull.sum()
        reached = first + shares @ apart
        distances = distances_to(reached, updates)
        # Against the middle distance: neither the origin nor an update far away may end the search early.
        moved, scale = np.linalg.norm(reached - point), np.median(distances)
        point = reached
        if moved <= MOVE * scale:
            break
    return Aggregate(point, shares)


def centred_clipping(
    updates: Floats, centre: Floats, radius: float | None = None, passes: int = 1, weights: Floats | None = None
) -> Aggregate:
    """From ``centre [P]``, ``passes`` times: go by the mean of the differences, each clipped to ``radius``.

    Without a radius it is the median of the differences' norms, in each pass anew.
    """
    share = _shares(len(updates), weights)
    point, factor = centre.astype(np.float64), np.ones(len(updates))
    for _ in range(passes):
        differences = updates - point
        norms = np.linalg.norm(differences, axis=1)
        factor = clipping(norms, float(np.median(norms)) if radius is None else radius)
        point = point + (share * factor) @ differences
    return Aggregate(point, share * factor)


def norm_bound(updates: Floats, bound: float, weights: Floats | None = None) -> Aggregate:
    """The mean of the updates, each clipped to the norm ``bound``."""
    share = _shares(len(updates), weights)
    factor = clipping(np.linalg.norm(updates, axis=1), bound)
    if weights is None:
        return Aggregate(uniform(updates * factor[:, None]), share * factor)
    return Aggregate((share * factor) @ updates, share * factor)


def clipping(norms: Floats, bound: float) -> Floats:
    """By what vectors with these ``norms`` are multiplied so that none passes the ``bound``: 1 below it."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(norms > bound, bound / norms, 1.0)


def _shares(count: int, weights: Floats | None) -> Floats:
    return np.full(count, 1.0 / count) if weights is None else weights / weights.sum()
