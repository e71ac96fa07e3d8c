"""What can stand before a rule: mixing with nearest neighbours (NNM), and bucketing.

Both make other updates ``[k, P]`` as means of the given ones; the matrix of these means ``[k, m]`` is what is returned.
"""

from __future__ import annotations

import numpy as np

from raysim.robust.rule import Floats, Ids, squared_distances


def nearest_neighbours(updates: Floats, f: int) -> Floats:
    """Each update becomes the mean of its ``m - f`` nearest, itself among them; of equally near ones the first."""
    m = len(updates)
    distances = squared_distances(updates)
    np.fill_diagonal(distances, -1.0)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, : max(1, m - f)]
    means = np.zeros((m, m))
    np.put_along_axis(means, nearest, 1.0 / nearest.shape[1], axis=1)
    return means


def bucket_size(m: int, f: int) -> int:
    """How many updates make a bucket, so that a rule still bears ``f`` wrong ones: ``max(1, floor(m / 2f))``."""
    return max(1, m // (2 * f)) if f else 1


def buckets(order: Ids, size: int) -> Floats:
    """Updates in this ``order [m]`` become the means of ``size`` in a row; the last may be of fewer."""
    m = len(order)
    means = np.zeros((-(-m // size), m))
    for bucket, first in enumerate(range(0, m, size)):
        members = order[first : first + size]
        means[bucket, members] = 1.0 / len(members)
    return means


def mixed(means: Floats, updates: Floats) -> Floats:
    """The means ``[k, P]`` of the updates; of equal ones they are these to the last bit."""
    first = updates[0]
    made: Floats = means @ (updates - first)
    made += first
    return made
