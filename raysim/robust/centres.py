"""Rules that find a centre of the updates or bound the influence of each update.

K. Pillutla, S. M. Kakade, Z. Harchaoui: *Robust Aggregation for Federated Learning*, IEEE Transactions on Signal
Processing 70, 2022 (geometric median). S. P. Karimireddy, L. He, M. Jaggi: *Learning from History for Byzantine Robust
Optimization*, ICML 2021 (centred clipping). Z. Sun, P. Kairouz, A. T. Suresh, H. B. McMahan: *Can You Really Backdoor
Federated Learning?*, arXiv:1911.07963, 2019 (norm bound). D. Yin, Y. Chen, K. Ramchandran, P. Bartlett:
*Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates*, ICML 2018 (coordinates, equal weights).
"""

from __future__ import annotations

import numpy as np

from raysim.core.arrays import Floats
from raysim.robust.rule import Aggregate, by_columns, distances_to, uniform

PASSES, MOVE = 1000, 1e-10
"""``PASSES`` is the largest number of iterations for the geometric median. The search ends earlier if a step is at most
``MOVE`` times the median distance of the updates from the new point."""


def geometric_median(
    updates: Floats,
    weights: Floats | None = None,
    *,
    nu: float = 1e-6,
    passes: int = PASSES,
    start: Floats | None = None,
) -> Aggregate:
    """Return the geometric median of the updates, the point with the smallest (weighted) sum of distances to them. It
    is computed by smoothed Weiszfeld iterations.

    The search starts at ``start [P]`` or, if it is None, at the weighted mean of the updates. An update closer than
    ``nu`` to the current point is weighted as if its distance were ``nu``.
    """
    mass = np.ones(len(updates)) if weights is None else weights
    first = updates[0]
    apart, shares = updates - first, mass / mass.sum()
    point: Floats = first + shares @ apart if start is None else start
    distances = distances_to(point, updates)
    for _ in range(passes):
        strength = mass / np.maximum(nu, distances)
        shares = strength / strength.sum()
        reached = first + shares @ apart
        distances = distances_to(reached, updates)
        # The step is compared with the median distance, so that neither the origin nor a distant update ends the search
        # early.
        moved, scale = np.linalg.norm(reached - point), np.median(distances)
        point = reached
        if moved <= MOVE * scale:
            break
    return Aggregate(point, shares)


def centred_clipping(updates: Floats, centre: Floats, radius: float | None = None, passes: int = 1) -> Aggregate:
    """Move ``centre [P]`` by the mean difference between the updates and the centre, with each difference clipped to
    the norm ``radius``. Repeat this ``passes`` times.

    If ``radius`` is None, it is the median norm of the differences.
    """
    share = 1.0 / len(updates)
    point, factor = centre.astype(np.float64), np.ones(len(updates))
    for _ in range(passes):
        differences = updates - point
        norms = np.linalg.norm(differences, axis=1)
        factor = clipping(norms, float(np.median(norms)) if radius is None else radius)
        point = point + (share * factor) @ differences
    return Aggregate(point, share * factor)


def norm_bound(updates: Floats, bound: float) -> Aggregate:
    """Return the mean of the updates after each is clipped to the 2-norm ``bound``."""
    factor = clipping(np.linalg.norm(updates, axis=1), bound)
    return Aggregate(uniform(updates * factor[:, None]), factor * (1.0 / len(updates)))


def clipping(norms: Floats, bound: float) -> Floats:
    """Return the factors by which vectors with these ``norms`` are multiplied to clip them to the norm ``bound``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(norms > bound, bound / norms, 1.0)


def median(updates: Floats, weights: Floats | None = None) -> Aggregate:
    """Return the median of each coordinate; for an even number of updates, the mean of the two middle values.

    With ``weights [m]``, return the weighted median: at most half of the total weight is on either side.
    """
    if weights is None:
        return Aggregate(np.median(updates, axis=0))
    return Aggregate(by_columns(lambda part: _weighted_middle(part, weights), updates))


def _weighted_middle(updates: Floats, weights: Floats) -> Floats:
    order = np.argsort(updates, axis=0, kind="stable")
    ordered, mass = np.take_along_axis(updates, order, axis=0), np.cumsum(weights[order], axis=0)
    half = weights.sum() / 2
    tolerance = 1e-12 * half
    low = (mass < half - tolerance).sum(axis=0)
    high = (mass <= half + tolerance).sum(axis=0)
    columns, last = np.arange(updates.shape[1]), len(updates) - 1
    return np.asarray((ordered[np.minimum(low, last), columns] + ordered[np.minimum(high, last), columns]) / 2)


def trimmed_mean(updates: Floats, trimmed: int, weights: Floats | None = None) -> Aggregate:
    """Return the mean of each coordinate without its ``trimmed`` lowest and ``trimmed`` highest values.

    With ``weights [m]``, a share ``trimmed / m`` of the total weight is left out at either end. At each end, one
    update may be left out only in part. Raises ``ValueError`` unless ``2 * trimmed < m``.
    """
    m = len(updates)
    if 2 * trimmed >= m:
        raise ValueError(
            f"trimmed: {trimmed} at each end leaves none of {m} updates; give less than half of their number"
        )
    if weights is None:
        return Aggregate(by_columns(lambda part: uniform(np.sort(part, axis=0)[trimmed : m - trimmed]), updates))
    return Aggregate(by_columns(lambda part: _trimmed(part, trimmed, weights), updates))


def _trimmed(updates: Floats, trimmed: int, weights: Floats) -> Floats:
    order = np.argsort(updates, axis=0, kind="stable")
    ordered, mass = np.take_along_axis(updates, order, axis=0), weights[order]
    upper = np.cumsum(mass, axis=0)
    whole = weights.sum()
    cut = whole * trimmed / len(updates)
    inside = np.clip(np.minimum(upper, whole - cut) - np.maximum(upper - mass, cut), 0.0, None)
    first = ordered[np.argmax(inside > 0, axis=0), np.arange(updates.shape[1])]
    return np.asarray(first + ((ordered - first) * inside).sum(axis=0) / inside.sum(axis=0))
