"""Rows in the bins of their columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.trees.edges import Floats, Ints
from raysim.trees.settings import TreeTask


@dataclass(frozen=True, eq=False)
class Bins:
    """The bins of ``F`` columns.

    - ``edges [F]``: ascending numbers; a value is in the bin of how many edges are below it. Empty for categories.
    - ``levels [F]``: the categories of each column, each a bin; 0 for numbers.

    The last bin of each column is that of missing values, and of categories that no training row had. All bins stand
    one behind the other in ``W`` places, those of column ``f`` from ``first[f]``.
    """

    edges: tuple[Floats, ...]
    levels: tuple[int, ...]

    @staticmethod
    def of(task: TreeTask, edges: Mapping[int, Floats]) -> Bins:
        """The bins of a task whose columns of numbers have these ``edges``."""
        return Bins(tuple(edges.get(f, np.zeros(0)) for f in range(len(task.levels))), task.levels)

    @cached_property
    def sizes(self) -> Ints:
        """The bins of each column without the missing one, ``[F]``."""
        return np.array(
            [levels or len(edges) + 1 for edges, levels in zip(self.edges, self.levels, strict=True)], np.int64
        )

    @cached_property
    def first(self) -> Ints:
        """Where each column's bins begin, ``[F]``."""
        return np.concatenate([[0], np.cumsum(self.sizes + 1)[:-1]]).astype(np.int64)

    @property
    def width(self) -> int:
        """W, all bins of all columns."""
        return int((self.sizes + 1).sum())

    def places(self, X: NDArray[Any]) -> NDArray[np.int32]:
        """The place of each value of rows ``X [n, F]``, ``[n, F]``."""
        made = np.empty(X.shape, np.int32)
        for f, (edges, levels) in enumerate(zip(self.edges, self.levels, strict=True)):
            column = X[:, f].astype(np.float64)
            if levels:
                known = (column >= 0) & (column < levels)
                inside = np.where(known, column, levels).astype(np.int32)
            else:
                inside = np.searchsorted(edges, column, side="left").astype(np.int32)
                inside[np.isnan(column)] = len(edges) + 1
            made[:, f] = inside + np.int32(self.first[f])
        return made

    def codes(self, places: NDArray[np.int32]) -> NDArray[np.uint8]:
        """The bin of each value, a column in each line: ``[F, n]`` from ``places [n, F]``."""
        return np.ascontiguousarray((places - self.first.astype(np.int32)).T.astype(np.uint8))

    def threshold(self, column: int, bin: int) -> float:
        """The largest float32 in a bin of numbers; infinite for the last one."""
        edges = self.edges[column]
        if bin >= len(edges):
            return np.inf
        near = np.float32(edges[bin])
        return float(near if near <= edges[bin] else np.nextafter(near, np.float32(-np.inf)))
