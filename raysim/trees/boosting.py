"""Boosting on rows that lie in one place: what a hospital does alone, and what federated boosting is equal to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.trees.binning import Bins
from raysim.trees.edges import Floats, Ints, answered, find_edges, pooled
from raysim.trees.forest import Forest
from raysim.trees.growing import Fallen, Grown, Level, grow
from raysim.trees.histograms import histograms
from raysim.trees.losses import GRID, base, gradients, label_scale, label_units
from raysim.trees.settings import TreeTask


class Rows:
    """The rows of one place as boosting needs them: their bins, labels, and margins, which trees change."""

    def __init__(self, bins: Bins, places: NDArray[np.int32], y: NDArray[Any], margins: Ints) -> None:
        """``places [n, F]``, ``y [n]``, ``margins [n, K]`` in steps."""
        self._bins, self._places, self._codes, self._y = bins, places, bins.codes(places), y
        self.margins = margins

    def level(self, level: Level, g: Floats, h: Floats, taken: NDArray[np.bool_] | None = None) -> Floats:
        """The histograms of a ``level``, ``[m, W, 3]``, of the rows that are ``taken [n]`` (None: all)."""
        made = []
        for k in np.unique(level.which).tolist():
            tree = level.trees[k]
            fallen = Fallen(self._codes, tree.column, tree.left, taken)
            rows = [fallen.rows(node) for node in level.nodes[level.which == k].tolist()]
            made.append(histograms(self._places, rows, g[:, k], h[:, k], self._bins.width))
        return np.concatenate(made)

    def add(self, trees: list[Grown]) -> None:
        """Add grown trees to the margins."""
        for k, tree in enumerate(trees):
            for leaf, rows in Fallen(self._codes, tree.column, tree.left).leaves():
                self.margins[rows, k] += tree.value[leaf]


def edges_of(task: TreeTask, X: NDArray[Any]) -> Bins:
    """The bins of a task's columns, by rows ``X [n, F]``."""
    numbers = np.flatnonzero(np.array(task.levels) == 0)
    if not len(numbers):
        return Bins.of(task, {})
    exact = task.settings.edges == "exact"
    return Bins.of(task, pooled(find_edges(numbers, task.settings.bins, exact=exact), X))


def starting(task: TreeTask, y: NDArray[Any]) -> Forest:
    """No tree, and the margins that rows with labels ``y [n]`` have before the first."""
    scale = label_scale(y) if task.loss == "squared" else 0
    sums = np.bincount(y, minlength=task.classes) if task.classes else label_units(y, scale).sum(keepdims=True) / GRID
    return Forest.start(task, base(task.loss, sums.astype(np.float64), len(y)), scale)


def boosted(
    task: TreeTask,
    X: NDArray[Any],
    y: NDArray[Any],
    bins: Bins | None = None,
    forest: Forest | None = None,
    columns: Callable[[int], NDArray[np.bool_] | None] | None = None,
    rows: Callable[[int], NDArray[np.bool_] | None] | None = None,
) -> Forest:
    """The trees of a task, grown on rows ``X [n, F]`` with labels ``y [n]``.

    ``bins``: those of the columns (None: by these rows); ``forest``: what goes before them (None: nothing);
    ``columns(t)`` and ``rows(t)``: what the t-th tree may split by ``[F]``, and is grown on ``[n]``.
    """
    bins = edges_of(task, X) if bins is None else bins
    forest = starting(task, y) if forest is None else forest
    here = Rows(bins, bins.places(X), y, np.rint(forest.margins(X) * 2.0 ** (40 - forest.scale)).astype(np.int64))
    for t in range(task.together):
        g, h = gradients(task.loss, here.margins, y, forest.scale)
        allowed = None if columns is None else columns(t)
        taken = None if rows is None else rows(t)
        K = task.outputs
        trees = answered(grow(bins, task.settings, K, [allowed] * K), partial(here.level, g=g, h=h, taken=taken))
        here.add(trees)
        forest = forest.grown(trees, bins)
    return forest
