"""Mixing before a rule: with nearest neighbours (NNM), or in buckets.

Both replace the updates by ``k`` means of them, and return the matrix ``[k, m]`` of the weights of these means.

Y. Allouah, S. Farhadkhani, R. Guerraoui, N. Gupta, R. Pinot, J. Stephan: *Fixing by Mixing: A Recipe for Optimal
Byzantine ML under Heterogeneity*, AISTATS 2023 (NNM). S. P. Karimireddy, L. He, M. Jaggi: *Byzantine-Robust Learning on
Heterogeneous Datasets via Bucketing*, ICLR 2022.
"""

from __future__ import annotations

import numpy as np

from raysim.robust.rule import Floats, Ids, squared_distances


def nearest_neighbours(updates: Floats, f: int) -> Floats:
    """Replace each update by the mean of its ``m - f`` nearest, including itself, ``[m, m]``; ties go to the first."""
    m = len(updates)
    distances = squared_distances(updates)
    np.fill_diagonal(distances, -1.0)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, : max(1, m - f)]
    means = np.zeros((m, m))
    np.put_along_axis(means, nearest, 1.0 / nearest.shape[1], axis=1)
    return means


def bucket_size(m: int, f: int) -> int:
    """Return the size of buckets with which a rule still tolerates ``f`` wrong updates: ``max(1, floor(m / 2f))``."""
    return max(1, m // (2 * f)) if f else 1


def buckets(order: Ids, size: int) -> Floats:
    """Average ``size`` consecutive updates in this ``order [m]``; the last bucket may have fewer."""
    m = len(order)
    means = np.zeros((-(-m // size), m))
    for bucket, first in enumerate(range(0, m, size)):
        members = order[first : first + size]
        means[bucket, members] = 1.0 / len(members)
    return means


def mixed(means: Floats, updates: Floats) -> Floats:
    """Return the means ``[k, P]`` of the updates; the mean of equal updates equals them to the last bit."""
    first = updates[0]
    made: Floats = means @ (updates - first)
    made += first
    return made
