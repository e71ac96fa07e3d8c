"""The growing of trees level by level, from sums over all rows by node and bin.

The nodes of a tree are numbered as in a heap: node ``i`` has the children ``2 i + 1`` (left) and ``2 i + 2``. Of two
children, only the histogram of the child with fewer rows is requested, or of the left child if both have equally many.
The other child's histogram is the parent's minus the requested one, which is exact because all sums are whole numbers.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats, Ints
from raysim.trees.binning import Bins
from raysim.trees.histograms import CHANNELS
from raysim.trees.losses import GRID, LARGEST, MARGIN
from raysim.trees.settings import TreeSettings
from raysim.trees.splits import best_splits


@dataclass(frozen=True, eq=False)
class Grown:
    """A grown tree, with arrays for ``I = 2^depth - 1`` splits and ``N = 2 I + 1`` nodes."""

    column: NDArray[np.int16]
    """The column by which each node is split, ``[I]``; -1 if it is not split."""
    bin: NDArray[np.int16]
    """The last bin that goes left at each split, ``[I]``; for categories, see :attr:`raysim.trees.splits.Split.bin`."""
    left: NDArray[np.bool_]
    """Whether each of up to ``L`` bins of the split's column goes left, ``[I, L]``; the column's last bin is that of
    missing values."""
    gain: Floats
    """The gain of each split, ``[I]``; 0 if a node is not split."""
    sums: Floats
    """The sums over the rows of each node, ``[N, 3]``: gradients, second derivatives (both in units of ``2^-30``), and
    the number of rows. 0 for nodes that do not exist."""
    value: Ints
    """The value of each leaf in units of ``2^-40``, ``[N]``; 0 for other nodes."""

    @property
    def depth(self) -> int:
        """Return the largest possible number of splits between the root and a leaf."""
        return len(self.column).bit_length()

    @staticmethod
    def empty(depth: int, bins: Bins) -> Grown:
        """Return a tree without splits, with all sums 0."""
        splits = 2**depth - 1
        return Grown(
            np.full(splits, -1, np.int16),
            np.zeros(splits, np.int16),
            np.zeros((splits, int(bins.sizes.max()) + 1), np.bool_),
            np.zeros(splits),
            np.zeros((2 * splits + 1, CHANNELS)),
            np.zeros(2 * splits + 1, np.int64),
        )


def descended(
    codes: NDArray[np.uint8], column: NDArray[Any], left: NDArray[np.bool_], node: NDArray[np.uint16]
) -> NDArray[np.uint16]:
    """Return the nodes that rows reach from ``node [n]`` by one more level of splits, ``[n]``. Rows at leaves stay
    there.

    ``codes [n, F]`` are the bins of the rows' values; ``column [I]`` and ``left [I, L]`` are as in :class:`Grown`.
    """
    by = column.take(node)
    if (moving := np.flatnonzero(by >= 0)).size == 0:
        return node
    at = node.take(moving).astype(np.int64)
    code = codes.ravel().take(moving * codes.shape[1] + by.take(moving))
    further = node.copy()
    further[moving] = 2 * at + 2 - left.ravel().take(at * left.shape[1] + code)
    return further


def reached(codes: NDArray[np.uint8], column: NDArray[Any], left: NDArray[np.bool_], levels: int) -> NDArray[np.uint16]:
    """Return the node that each row reaches after ``levels`` levels of splits from the root, ``[n]``.

    The other arguments are as in :func:`descended`.
    """
    node = np.zeros(len(codes), np.uint16)
    for _ in range(levels):
        # The deepest nodes have no split, and no entry.
        node = descended(codes, column, left, node)
    return node


def members(node: NDArray[np.uint16], asked: Sequence[int], taken: NDArray[np.bool_] | None = None) -> list[Ints]:
    """Return the rows at each of the nodes ``asked``, ascending.

    ``node [n]`` is each row's node; ``taken [n]`` marks the rows that are used (None: all).
    """
    found = []
    for each in asked:
        inside = node == each
        found.append(np.flatnonzero(inside if taken is None else inside & taken))
    return found


def level_of(nodes: Ints) -> int:
    """Return the number of splits above ``nodes``, which must all be in one level of the tree."""
    return int(nodes[0] + 1).bit_length() - 1


@dataclass(frozen=True, eq=False)
class Level:
    """A request for the histograms of ``nodes [m]``; ``nodes[i]`` is in the partly grown tree ``trees[which[i]]``."""

    trees: Sequence[Grown]
    which: Ints
    nodes: Ints


Growing = Generator[Level, Floats, list[Grown]]
"""The type of generators that grow trees: they yield requests (:class:`Level`), receive histograms ``[m, W, 3]``, and
return the trees."""


def grow(
    bins: Bins, settings: TreeSettings, together: int = 1, columns: Sequence[NDArray[np.bool_] | None] = ()
) -> Growing:
    """Grow ``together`` trees at once, level by level (:data:`Growing`).

    ``columns`` has, for each tree, a mask ``[F]`` of the columns that splits may use. None, or an empty sequence, means
    all.
    """
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
                # Every row is in one bin of the first column, so the bins of this column add up to all rows.
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
                # A node with too few rows for two sides is not split.
                if split.sums[:, 2].max() >= 2 * settings.min_rows:
                    smaller = int(split.sums[0, 2] > split.sums[1, 2])
                    asked.append((k, 2 * node + 1 + smaller))
                    parents[k, node] = stacked[at]
    for tree in trees:
        tree.value[:] = leaf_values(tree, settings)
    return trees


def leaf_values(tree: Grown, settings: TreeSettings) -> Ints:
    """Return the value of each leaf, ``-rate G / (H + l2)``, ``[N]``; 0 for nodes that are not leaves.

    ``G`` and ``H`` are the sums of gradients and second derivatives over the leaf's rows. The unit is ``2^-40``.
    """
    G, H = tree.sums[:, 0] / GRID, tree.sums[:, 1] / GRID + settings.l2
    values = np.divide(-settings.rate * G, H, out=np.zeros_like(G), where=H > 0)
    leaf = tree.sums[:, 2] > 0
    leaf[: len(tree.column)] &= tree.column < 0
    steps = np.clip(np.rint(values * MARGIN), -LARGEST, LARGEST).astype(np.int64)
    return np.where(leaf, steps, 0)
