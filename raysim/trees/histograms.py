"""Sums over rows by node and bin: the only thing that a tree is grown from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from raysim.trees.binning import Bins
from raysim.trees.edges import Floats, Ints

CHANNELS = 3
"""Sums of gradients, of second derivatives, and counts."""

MOST_CELLS = 2**11
"""Cells of neighbouring columns that are counted together: their sums stay in the cache."""

FEW = 2**12
"""Rows of a node for which it takes longer to add up cells than to add each column by itself."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Neighbouring columns whose bins are counted together, ``G`` groups of them.

    A row is in one cell of each group, that of its bins of the group's columns. Cells are fewer than bins, and a bin is
    the sum of the cells that have it.
    """

    group: Ints
    """Which group each column is in, ``[F]``."""
    factor: Ints
    """How many cells lie between two bins of the column, ``[F]``."""
    start: Ints
    """Where the cells of each group begin, ``[G]``."""
    count: int
    """All cells."""
    of_bins: sparse.csr_array
    """Which cells each bin has, ``[W, count]`` zeros and ones."""

    def of(self, codes: NDArray[np.uint8]) -> NDArray[np.int32]:
        """The cells of rows whose bins are ``codes [F, n]``, ``[n, G]``."""
        made = np.empty((codes.shape[1], len(self.start)), np.int32)
        made[:] = self.start
        for column, group, factor in zip(codes, self.group.tolist(), self.factor.tolist(), strict=True):
            made[:, group] += column * np.int32(factor)
        return made


@lru_cache(maxsize=8)
def cells_of(sizes: tuple[int, ...]) -> Cells:
    """The groups of columns that have ``sizes [F]`` bins, missing ones included."""
    group, factor, cells = [], [], list[int]()
    for size in sizes:
        if not cells or cells[-1] * size > MOST_CELLS:
            cells.append(1)
        group.append(len(cells) - 1)
        factor.append(cells[-1])
        cells[-1] *= size
    start = np.cumsum([0, *cells])
    first = np.cumsum([0, *sizes])
    bins, places = [], []
    for f, size in enumerate(sizes):
        within = np.arange(cells[group[f]])
        bins.append(first[f] + within // factor[f] % size)
        places.append(start[group[f]] + within)
    at = np.concatenate(bins), np.concatenate(places)
    of_bins = sparse.csr_array((np.ones(len(at[0])), at), shape=(int(first[-1]), int(start[-1])))
    return Cells(np.array(group), np.array(factor), start[:-1], int(start[-1]), of_bins)


class Binned:
    """Rows in their ``bins``, with ``codes [F, n]``, as sums of them are taken."""

    def __init__(self, bins: Bins, codes: NDArray[np.uint8], cells: NDArray[np.int32] | None = None) -> None:
        """``cells``: what :meth:`cells` made of these rows before."""
        self.bins, self.codes = bins, codes
        self._cells = cells

    def cells(self) -> NDArray[np.int32]:
        """The cells of the rows, ``[n, G]``."""
        if self._cells is None:
            self._cells = cells_of(tuple((self.bins.sizes + 1).tolist())).of(self.codes)
        return self._cells

    def histograms(self, nodes: Sequence[Ints], g: Floats, h: Floats) -> Floats:
        """The sums ``[m, W, 3]`` of ``m`` nodes, for each of which ``nodes`` has its rows, ascending.

        ``g [n]`` and ``h [n]`` are whole numbers, so that the sums are exact, whichever way they are taken.
        """
        taken = sum(map(len, nodes))
        if taken < FEW * len(nodes):
            return self._by_column(nodes, g, h)
        cells, groups = self.cells(), cells_of(tuple((self.bins.sizes + 1).tolist()))
        made = np.empty((len(nodes), self.bins.width, CHANNELS))
        for node, rows in enumerate(nodes):
            if len(rows) == len(cells):
                made[node] = groups.of_bins @ _added(cells, g, h, groups.count)
            else:
                some = cells.take(rows, axis=0), g.take(rows), h.take(rows)
                made[node] = groups.of_bins @ _added(*some, groups.count)
        return made

    def _by_column(self, nodes: Sequence[Ints], g: Floats, h: Floats) -> Floats:
        rows = np.concatenate(nodes)
        starts = np.repeat(np.arange(len(nodes)) * self.bins.width, [len(node) for node in nodes])
        places = self.codes.take(rows, axis=1).T + (self.bins.first + starts[:, None]).astype(np.int32)
        sums = _added(places, g.take(rows), h.take(rows), len(nodes) * self.bins.width)
        return sums.reshape(len(nodes), self.bins.width, CHANNELS)


def _added(places: NDArray[Any], g: Floats, h: Floats, count: int) -> Floats:
    """The sums ``[count, 3]`` over rows with ``places [n, G]``: the product of a sparse matrix of ones, a column for
    each row."""
    n, width = places.shape
    ends = np.arange(n + 1, dtype=np.int32) * np.int32(width)
    ones = sparse.csc_array((_ones(n * width), places.ravel(), ends), shape=(count, n))
    sums: Floats = ones @ np.column_stack([g, h, np.ones(n)])
    return sums


def _ones(count: int) -> Floats:
    """So many ones. SciPy copies views of less than half of an array, so each power of two has its own."""
    return _ones_of((count - 1).bit_length())[:count] if count else np.ones(0)


@lru_cache(maxsize=32)
def _ones_of(power: int) -> Floats:
    made = np.ones(2**power)
    made.flags.writeable = False
    return made
