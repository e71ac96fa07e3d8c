"""Sums over rows by node and bin, from which trees are grown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from raysim.core.arrays import Floats, Ints
from raysim.trees.binning import Bins

CHANNELS = 3
"""The number of values in each bin: the sums of gradients and of second derivatives, and the number of rows."""

MOST_CELLS = 2**11
"""The largest number of :class:`Cells` in a group of columns, so that sums stay in the cache."""

FEW = 2**12
"""If nodes have fewer rows than this on average, sums by column are faster than sums by cell."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Combinations of bins of several columns, over which rows are summed faster than over single bins.

    Neighbouring columns form ``G`` groups. A cell is a combination of bins, one for each column of a group.
    """

    group: Ints
    """The index of the group to which each column belongs, ``[F]``."""
    factor: Ints
    """By how much a cell's index grows if the bin of a column grows by 1, for each column, ``[F]``."""
    start: Ints
    """The index of the first cell of each group, ``[G]``."""
    count: int
    """The number of cells in all groups together."""
    of_bins: sparse.csr_array
    """A matrix ``[W, count]`` for the ``W`` bins of all columns: 1 if a cell belongs to a bin, otherwise 0."""

    def of(self, codes: NDArray[np.uint8]) -> NDArray[np.int32]:
        """Return the index of each row's cell in each group of columns, ``[n, G]``, from the rows' bins ``codes [n,
        F]``.
        """
        made = np.empty((len(codes), len(self.start)), np.int32)
        made[:] = self.start
        for column, group, factor in zip(codes.T, self.group.tolist(), self.factor.tolist(), strict=True):
            made[:, group] += column * np.int32(factor)
        return made


@lru_cache(maxsize=8)
def cells_of(sizes: tuple[int, ...]) -> Cells:
    """Return the cells for columns with ``sizes [F]`` bins, including the bins of missing values."""
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
    """Rows whose values are replaced by the indices of their bins, ``codes [n, F]``."""

    def __init__(self, bins: Bins, codes: NDArray[np.uint8], cells: NDArray[np.int32] | None = None) -> None:
        self.bins, self.codes = bins, codes
        self._cells = cells

    def cells(self) -> NDArray[np.int32]:
        """Return the index of each row's cell in each group of columns (:class:`Cells`), ``[n, G]``."""
        if self._cells is None:
            self._cells = cells_of(tuple((self.bins.sizes + 1).tolist())).of(self.codes)
        return self._cells

    def histograms(self, nodes: Sequence[Ints], g: Floats, h: Floats) -> Floats:
        """Return the histograms of ``m`` nodes over the ``W`` bins of all columns, ``[m, W, 3]``: sums of ``g``, sums
        of ``h`` and numbers of rows.

        ``nodes`` has the rows of each node, ascending. The gradients ``g [n]`` and second derivatives ``h [n]`` are
        whole numbers, in units of 2^-30, so that sums are exact in any order of addition.
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
        places = self.codes.take(rows, axis=0) + self.bins.first.astype(np.int32)
        ends = np.cumsum([len(node) for node in nodes])
        for start, end, node in zip(ends[:-1], ends[1:], range(1, len(nodes)), strict=True):
            places[start:end] += np.int32(node * self.bins.width)
        sums = _added(places, g.take(rows), h.take(rows), len(nodes) * self.bins.width)
        return sums.reshape(len(nodes), self.bins.width, CHANNELS)


def _added(places: NDArray[Any], g: Floats, h: Floats, count: int) -> Floats:
    """Return the sums of ``g`` and ``h`` and the number of rows in each of ``count`` bins, ``[count, 3]``.

    ``places [n, width]`` are the bins of each row, one for each column, or its cells, one for each group of columns.
    """
    n, width = places.shape
    ends = np.arange(n + 1, dtype=np.int32) * np.int32(width)
    ones = sparse.csc_array((_ones(n * width), places.ravel(), ends), shape=(count, n))
    sums: Floats = ones @ np.column_stack([g, h, np.ones(n)])
    return sums


def _ones(count: int) -> Floats:
    """Return ``count`` ones, as a view of a cached array.

    The array's length is the next power of two, because SciPy copies a view that is less than half of its array.
    """
    return _ones_of((count - 1).bit_length())[:count] if count else np.ones(0)


@lru_cache(maxsize=32)
def _ones_of(power: int) -> Floats:
    made = np.ones(2**power)
    made.flags.writeable = False
    return made
