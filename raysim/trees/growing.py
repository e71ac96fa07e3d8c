"""Trees grown level by level, from the sums that all rows have by node and bin.

The nodes of a tree are numbered as in a heap: node ``i`` has the children ``2 i + 1`` (left) and ``2 i + 2``. Of two
children only the histogram of the one with fewer rows is asked for (the left one if both have as many); that of the
other is what their parent's is more. All histograms are of whole numbers, so this loses nothing. Leaves need no sums of
their own: they are sides of a split.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.trees.binning import Bins
from raysim.trees.edges import Floats, Ints
from raysim.trees.histograms import CHANNELS
from raysim.trees.losses import GRID, LARGEST, MARGIN
from raysim.trees.settings import TreeSettings
from raysim.trees.splits import best_splits


@dataclass(frozen=True, eq=False)
class Grown:
    """A tree of up to ``I = 2^depth - 1`` splits and ``N = 2 I + 1`` nodes."""

    column: NDArray[np.int16]
    """The column that each node is split by, ``[I]``; -1: none."""
    bin: NDArray[np.int16]
    """As :attr:`raysim.trees.splits.Split.bin`, ``[I]``."""
    left: NDArray[np.bool_]
    """Which bins of that column go left, its missing one last, ``[I, L]``; False beyond them."""
    gain: Floats
    """The gain of each split, ``[I]``."""
    sums: Floats
    """The sums of each node over rows, ``[N, 3]`` whole numbers; 0 where there is no node."""
    value: Ints
    """The value of each leaf in steps of a margin, ``[N]``; 0 elsewhere."""

    @staticmethod
    def empty(depth: int, bins: Bins) -> Grown:
        """A root alone, without sums."""
        splits = 2**depth - 1
        return Grown(
            np.full(splits, -1, np.int16),
            np.zeros(splits, np.int16),
            np.zeros((splits, int(bins.sizes.max()) + 1), np.bool_),
            np.zeros(splits),
            np.zeros((2 * splits + 1, CHANNELS)),
            np.zeros(2 * splits + 1, np.int64),
        )


class Fallen:
    """Where rows have come to in a tree with splits ``column [I]`` and ``left [I, L]``.

    ``codes [F, n]``: the bin of each value. Rows of a node are read along one column, so that little memory is touched,
    and rows of nodes that nobody asks for are not looked at. ``taken [n]``: which rows there are; None: all.
    """

    def __init__(
        self,
        codes: NDArray[np.uint8],
        column: NDArray[Any],
        left: NDArray[np.bool_],
        taken: NDArray[np.bool_] | None = None,
    ) -> None:
        self._codes, self._column, self._left = codes, column, left
        rows = np.arange(codes.shape[1]) if taken is None else np.flatnonzero(taken)
        self._rows: dict[int, Ints] = {0: rows}
        self._goes: dict[int, NDArray[np.bool_]] = {}

    def rows(self, node: int) -> Ints:
        """The rows that have come to a ``node``, ascending."""
        if node not in self._rows:
            parent = (node - 1) // 2
            above, goes = self.rows(parent), self._goes_left(parent)
            self._rows[node] = above[goes if node % 2 else ~goes]
        return self._rows[node]

    def _goes_left(self, node: int) -> NDArray[np.bool_]:
        if node not in self._goes:
            codes, rows = self._codes[self._column[node]], self.rows(node)
            self._goes[node] = self._left[node].take(codes if len(rows) == len(codes) else codes.take(rows))
        return self._goes[node]

    def leaves(self) -> Iterator[tuple[int, Ints]]:
        """Each leaf with its rows."""
        waiting, inner = [0], len(self._column)
        for node in waiting:
            if node < inner and self._column[node] >= 0:
                waiting += [2 * node + 1, 2 * node + 2]
            else:
                yield node, self.rows(node)


@dataclass(frozen=True, eq=False)
class Level:
    """Histograms that are needed next: of ``nodes [m]`` of the trees ``which [m]``, as far as these are grown."""

    trees: Sequence[Grown]
    which: Ints
    nodes: Ints


Growing = Generator[Level, Floats, list[Grown]]
"""Yields levels, receives their histograms ``[m, W, 3]``, and returns trees."""


def grow(
    bins: Bins, settings: TreeSettings, together: int = 1, columns: Sequence[NDArray[np.bool_] | None] = ()
) -> Growing:
    """Grow so many trees ``together``; ``columns`` says for each which columns it may split by (none: all)."""
    trees = [Grown.empty(settings.depth, bins) for _ in range(together)]
    asked = [(k, 0) for k in range(together)]
    parents: dict[tuple[int, int], Floats] = {}
    for depth in range(settings.depth):
        if not asked:
            break
        which, nodes = (np.array(part, np.int64) for part in zip(*asked, strict=True))
        received = yield Level(trees, which, nodes)
        known = dict(zip(asked, received, strict=True))
        if not depth:
            for (k, _), histogram in known.items():
                # Every row has one bin of the first column.
                trees[k].sums[0] = histogram[: int(bins.sizes[0]) + 1].sum(axis=0)
        for k, node in asked:
            if node:
                other = node + 1 if node % 2 else node - 1
                known[k, other] = parents[k, (node - 1) // 2] - known[k, node]
        asked, parents = [], {}
        for k, tree in enumerate(trees):
            level = [node for tree_of, node in sorted(known) if tree_of == k]
            if not level:
                continue
            stacked = np.stack([known[k, node] for node in level])
            allowed = columns[k] if columns else None
            for at, split in enumerate(best_splits(stacked, tree.sums[level], bins, settings, allowed)):
                if split is None:
                    continue
                node = level[at]
                tree.column[node], tree.bin[node], tree.gain[node] = split.column, split.bin, split.gain
                tree.left[node, : len(split.left)] = split.left
                tree.sums[2 * node + 1 : 2 * node + 3] = split.sums
                # A node with fewer rows than two sides need has no split.
                if split.sums[:, 2].max() >= 2 * settings.min_rows:
                    smaller = int(split.sums[0, 2] > split.sums[1, 2])
                    asked.append((k, 2 * node + 1 + smaller))
                    parents[k, node] = stacked[at]
    for tree in trees:
        tree.value[:] = leaf_values(tree, settings)
    return trees


def leaf_values(tree: Grown, settings: TreeSettings) -> Ints:
    """``-rate G / (H + l2)`` of each leaf in steps of a margin, ``[N]``; 0 for what is no leaf."""
    G, H = tree.sums[:, 0] / GRID, tree.sums[:, 1] / GRID + settings.l2
    values = np.divide(-settings.rate * G, H, out=np.zeros_like(G), where=H > 0)
    leaf = tree.sums[:, 2] > 0
    leaf[: len(tree.column)] &= tree.column < 0
    steps = np.clip(np.rint(values * MARGIN), -LARGEST, LARGEST).astype(np.int64)
    return np.where(leaf, steps, 0)
