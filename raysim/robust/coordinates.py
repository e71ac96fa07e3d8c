"""Rules for each coordinate separately: median and trimmed mean, with equal or weighted hospitals.

D. Yin, Y. Chen, K. Ramchandran, P. Bartlett: *Byzantine-Robust Distributed Learning: Towards Optimal Statistical
Rates*, ICML 2018, with equal weights.
"""

from __future__ import annotations

import numpy as np

from raysim.robust.rule import Aggregate, Floats, by_columns, middle, uniform


def median(updates: Floats, weights: Floats | None = None) -> Aggregate:
    """Return the median of each coordinate; for an even number of updates the mean of the two middle values.

    With ``weights [m]``: the value with half of the weight on either side.
    """
    if weights is None:
        return Aggregate(middle(updates))
    return Aggregate(by_columns(lambda part: _weighted_middle(part, weights), updates))


def _weighted_middle(updates: Floats, weights: Floats) -> Floats:
    order = np.argsort(updates, axis=0, kind="stable")
    ordered, mass = np.take_along_axis(updates, order, axis=0), np.cumsum(weights[order], axis=0)
    half = weights.sum() / 2
    tolerance = 1e-12 * half
    low = (mass < half - tolerance).sum(axis=0)
    high = (mass <= half + tolerance).sum(axis=0)
    columns, last = np.arange(updates.shape[1]), len(updates) - 1
    between: Floats = (ordered[np.minimum(low, last), columns] + ordered[np.minimum(high, last), columns]) / 2
    return between


def trimmed_mean(updates: Floats, trimmed: int, weights: Floats | None = None) -> Aggregate:
    """Return the mean of each coordinate without its ``trimmed`` lowest and highest values; ``2 * trimmed < m``.

    With ``weights [m]``, a share ``trimmed / m`` of the total weight is left out at either end; the last hospital may
    be left out in part. Raises ``ValueError`` if nothing would remain.
    """
    m = len(updates)
    if 2 * trimmed >= m:
        raise ValueError(f"{trimmed} values trimmed at either end leave none of {m}")
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
    mean: Floats = first + ((ordered - first) * inside).sum(axis=0) / inside.sum(axis=0)
    return mean
