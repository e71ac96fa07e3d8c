"""Rules for each coordinate by itself: median and trimmed mean, of hospitals that count alike or by a weight."""

from __future__ import annotations

import numpy as np

from raysim.robust.rule import Aggregate, Floats, uniform


def median(updates: Floats, weights: Floats | None = None) -> Aggregate:
    """The middle value of each coordinate, between the two middle ones where these are two.

    With ``weights [m]``: the value at which half of the mass lies on either side.
    """
    if weights is None:
        return Aggregate(np.median(updates, axis=0))
    order = np.argsort(updates, axis=0, kind="stable")
    ordered, mass = np.take_along_axis(updates, order, axis=0), np.cumsum(weights[order], axis=0)
    half = weights.sum() / 2
    tolerance = 1e-12 * half
    low = (mass < half - tolerance).sum(axis=0)
    high = (mass <= half + tolerance).sum(axis=0)
    columns = np.arange(updates.shape[1])
    last = len(updates) - 1
    middle = (ordered[np.minimum(low, last), columns] + ordered[np.minimum(high, last), columns]) / 2
    return Aggregate(middle)


def trimmed_mean(updates: Floats, trimmed: int, weights: Floats | None = None) -> Aggregate:
    """The mean of each coordinate without its ``trimmed`` lowest and highest values; ``2 * trimmed < m``.

    With ``weights [m]`` a mass of ``trimmed / m`` of all is left out at either end, if need be a part of a hospital's.
    """
    m = len(updates)
    if 2 * trimmed >= m:
        raise ValueError(f"{trimmed} values trimmed at either end leave none of {m}")
    if weights is None:
        kept = np.sort(updates, axis=0)[trimmed : m - trimmed]
        return Aggregate(uniform(kept))
    order = np.argsort(updates, axis=0, kind="stable")
    ordered, mass = np.take_along_axis(updates, order, axis=0), weights[order]
    upper = np.cumsum(mass, axis=0)
    whole = weights.sum()
    cut = whole * trimmed / m
    inside = np.clip(np.minimum(upper, whole - cut) - np.maximum(upper - mass, cut), 0.0, None)
    first = ordered[np.argmax(inside > 0, axis=0), np.arange(updates.shape[1])]
    return Aggregate(first + ((ordered - first) * inside).sum(axis=0) / inside.sum(axis=0))
