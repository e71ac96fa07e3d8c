"""Sums over rows by node and bin, from which trees are grown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from raysim.core.arrays import Floats, Ints
from raysim.trees.binning import Bins

CHANNELS = 3
"""The number of sums: gradients, second derivatives, and rows."""


@dataclass(frozen=True, eq=False)
class Binned:
    """Rows whose values are replaced by their bins."""

    bins: Bins
    """The bins of the columns."""
    codes: NDArray[np.uint8]
    """The bin of each value in its column, ``[n, F]``."""

    def histograms(self, nodes: Sequence[Ints], g: Floats, h: Floats) -> Floats:
        """Return the sums ``[m, W, 3]`` of ``m`` nodes; ``nodes`` has the rows of each node, ascending.

        ``g [n]`` and ``h [n]`` are whole numbers, so that sums are exact in any order of addition.
        """
        rows, sizes, width = np.concatenate(nodes), [len(node) for node in nodes], self.bins.width
        at_node = np.repeat(np.arange(len(nodes), dtype=np.int32) * np.int32(width), sizes)
        places = self.codes.take(rows, axis=0) + self.bins.first.astype(np.int32) + at_node[:, None]
        # The product with a sparse matrix of ones is several times faster than np.bincount.
        n, F = places.shape
        ends = np.arange(n + 1, dtype=np.int32) * np.int32(F)
        ones = sparse.csc_array((np.ones(n * F), places.ravel(), ends), shape=(len(nodes) * width, n))
        sums: Floats = ones @ np.column_stack([g.take(rows), h.take(rows), np.ones(n)])
        return sums.reshape(len(nodes), width, CHANNELS)
