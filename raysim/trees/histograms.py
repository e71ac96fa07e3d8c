"""Sums over rows by node and bin: the only thing that a tree is grown from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from raysim.trees.edges import Floats

CHANNELS = 3
"""Sums of gradients, of second derivatives, and counts."""


_made = [np.ones(0)]


def _ones(count: int) -> Floats:
    """So many ones, of an array that is made once for all."""
    if len(_made[0]) < count:
        _made[0] = np.ones(count)
        _made[0].flags.writeable = False
    return _made[0][:count]


def histograms(places: NDArray[np.int32], slots: NDArray[Any], g: Floats, h: Floats, nodes: int, width: int) -> Floats:
    """The sums ``[nodes, width, 3]`` of rows with ``places [n, F]`` whose node is ``slots [n]``, -1 for no node.

    ``g [n]`` and ``h [n]`` are whole numbers, so that the sums are exact. All columns and the three sums are added in
    one pass, as the product of a sparse matrix of ones, a column for each row.
    """
    rows = np.flatnonzero(slots >= 0)
    if not len(rows):
        return np.zeros((nodes, width, CHANNELS))
    if len(rows) < len(slots):
        places, slots, g, h = places[rows], slots[rows], g[rows], h[rows]
    n, F = places.shape
    index = places if nodes == 1 else places + (slots.astype(np.int32) * np.int32(width))[:, None]
    ends = np.arange(n + 1, dtype=np.int32) * np.int32(F)
    ones = sparse.csc_array((_ones(n * F), index.ravel(), ends), shape=(nodes * width, n))
    sums: Floats = ones @ np.column_stack([g, h, np.ones(n)])
    return sums.reshape(nodes, width, CHANNELS)
