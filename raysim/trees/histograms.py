"""Sums over rows by node and bin: the only thing that a tree is grown from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from raysim.trees.edges import Floats, Ints

CHANNELS = 3
"""Sums of gradients, of second derivatives, and counts."""


_made = [np.ones(0)]


def _ones(count: int) -> Floats:
    """So many ones, of an array that is made once for all."""
    if len(_made[0]) < count:
        _made[0] = np.ones(count)
        _made[0].flags.writeable = False
    return _made[0][:count]


def histograms(places: NDArray[np.int32], nodes: Sequence[Ints], g: Floats, h: Floats, width: int) -> Floats:
    """The sums ``[m, width, 3]`` of ``m`` nodes, of rows with ``places [n, F]``; for each node its rows, ascending.

    ``g [n]`` and ``h [n]`` are whole numbers, so that the sums are exact. All columns and the three sums are added in
    one pass, as the product of a sparse matrix of ones, a column for each row.
    """
    index = places
    if len(nodes) > 1 or len(nodes[0]) < len(places):
        rows = np.concatenate(nodes)
        index, g, h = places.take(rows, axis=0), g.take(rows), h.take(rows)
        starts = np.arange(len(nodes), dtype=np.int32) * np.int32(width)
        index += np.repeat(starts, [len(rows) for rows in nodes])[:, None]
    n, F = index.shape
    if not n:
        return np.zeros((len(nodes), width, CHANNELS))
    ends = np.arange(n + 1, dtype=np.int32) * np.int32(F)
    ones = sparse.csc_array((_ones(n * F), index.ravel(), ends), shape=(len(nodes) * width, n))
    sums: Floats = ones @ np.column_stack([g, h, np.ones(n)])
    return sums.reshape(len(nodes), width, CHANNELS)
