"""Binning of rows: the bin of each value in each column."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats, Ints
from raysim.trees.edges import Prefixes, find_edges
from raysim.trees.settings import TreeTask


@dataclass(frozen=True, eq=False)
class Bins:
    """The bins of ``F`` columns.

    - ``joined``: the edges of all columns, concatenated. ``lengths [F]``: the number of edges of each column.
    - ``levels [F]``: the number of categories of each column; 0 for columns of numbers. Each category is a bin.

    The last bin of each column is for missing values and for unknown categories.
    """

    joined: Floats
    lengths: Ints
    levels: tuple[int, ...]

    @staticmethod
    def between(edges: Sequence[Floats], levels: tuple[int, ...]) -> Bins:
        """Return the bins of ``F`` columns. ``edges`` has the edges of each column (none for categories), and
        ``levels`` each column's number of categories (0 for numbers).
        """
        return Bins(np.concatenate([np.zeros(0), *edges]), np.array([len(each) for each in edges], np.int64), levels)

    @staticmethod
    def of(task: TreeTask, edges: Mapping[int, Floats]) -> Bins:
        """Return the bins of a task's columns; ``edges`` has the edges of each numeric column, by column index."""
        return Bins.between([edges.get(f, np.zeros(0)) for f in range(len(task.levels))], task.levels)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields to pickle: with ``digest``, but without ``edges``, which receivers rarely need."""
        return {name: value for name, value in vars(self).items() if name != "edges"} | {"digest": self.digest}

    @cached_property
    def edges(self) -> tuple[Floats, ...]:
        """Return the ascending edges of each column, as ``F`` arrays.

        The bin of a value is the number of edges below it.
        """
        return tuple(np.split(self.joined, np.cumsum(self.lengths)[:-1]))

    @cached_property
    def digest(self) -> str:
        """Return a hash of the bins."""
        parts = (np.array(self.levels, np.int64), self.lengths, self.joined)
        return hashlib.blake2b(b"".join(part.tobytes() for part in parts), digest_size=12).hexdigest()

    @cached_property
    def sizes(self) -> Ints:
        """Return the number of bins of each column, ``[F]``, not counting the bin of missing values."""
        levels = np.array(self.levels, np.int64)
        return np.where(levels > 0, levels, self.lengths + 1)

    @cached_property
    def first(self) -> Ints:
        """Return the index of each column's first bin among the consecutive bins of all columns, ``[F]``."""
        return np.concatenate([[0], np.cumsum(self.sizes + 1)[:-1]]).astype(np.int64)

    @cached_property
    def width(self) -> int:
        """Return the number of bins of all columns together, ``W``, including the bins of missing values."""
        return int((self.sizes + 1).sum())

    def codes(self, X: NDArray[Any]) -> NDArray[np.uint8]:
        """Return the index of the bin of each value of rows ``X [n, F]``, in the same shape."""
        made = np.empty(X.shape, np.uint8)
        for f, (edges, levels) in enumerate(zip(self.edges, self.levels, strict=True)):
            column = X[:, f].astype(np.float64)
            if levels:
                known = (column >= 0) & (column < levels)
                made[:, f] = np.where(known, column, levels)
            else:
                made[:, f] = np.searchsorted(edges, column, side="left")
                made[np.isnan(column), f] = len(edges) + 1
        return made

    def threshold(self, column: int, bin: int) -> float:
        """Return the largest float32 number in a bin of a numeric column; infinite for the last bin of numbers."""
        edges = self.edges[column]
        if bin >= len(edges):
            return np.inf
        near = np.float32(edges[bin])
        return float(near if near <= edges[bin] else np.nextafter(near, np.float32(-np.inf)))


def find_bins(task: TreeTask) -> Generator[Prefixes, Ints, Bins]:
    """Find the bins of a task's columns; yields requests for counts, as :func:`raysim.trees.edges.find_edges` does."""
    numbers = np.flatnonzero(np.array(task.levels) == 0)
    if not len(numbers):
        return Bins.of(task, {})
    edges = yield from find_edges(numbers, task.settings.bins, exact=task.settings.edges == "exact")
    return Bins.of(task, edges)
