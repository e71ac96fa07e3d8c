"""Boosting on rows that are all in one place. Federated boosting grows the same trees."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats, Ints
from raysim.core.early_stopping import Checks, Held, Stop
from raysim.trees.binning import Bins, find_bins
from raysim.trees.edges import answered, pooled
from raysim.trees.forest import Forest
from raysim.trees.growing import Grown, Level, grow, level_of, members, reached
from raysim.trees.histograms import Binned
from raysim.trees.losses import GRID, base, gradients, label_scale, label_units, mean_loss
from raysim.trees.settings import TreeTask

LEAST_LABELS = 30
"""With at least this many validation rows (for classes: of each class), their loss decides how many trees a hospital
keeps."""


class Rows:
    """Rows on which trees are grown: their bins, labels and margins (initial margins plus the values of reached
    leaves).
    """

    def __init__(self, binned: Binned, y: NDArray[Any], margins: Ints) -> None:
        """``y [n]`` are the labels, and ``margins [n, K]`` the margins so far in units of ``2^-40``."""
        self._binned, self.y = binned, y
        self.margins = margins

    def level(self, level: Level, g: Floats, h: Floats, taken: NDArray[np.bool_] | None = None) -> Floats:
        """Return the histograms of the ``m`` nodes that ``level`` requests, ``[m, W, 3]``.

        ``g`` and ``h`` are the rows' gradients and second derivatives, ``[n, K]``. ``taken [n]`` marks the rows that
        are used; None means all.
        """
        made = []
        for k in np.unique(level.which).tolist():
            tree, nodes = level.trees[k], level.nodes[level.which == k]
            node = reached(self._binned.codes, tree.column, tree.left, level_of(nodes))
            made.append(self._binned.histograms(members(node, nodes.tolist(), taken), g[:, k], h[:, k]))
        return np.concatenate(made)

    def grown(
        self, task: TreeTask, scale: int, columns: NDArray[np.bool_] | None, taken: NDArray[np.bool_] | None
    ) -> list[Grown]:
        """Grow one tree for each output of the model.

        ``columns [F]`` marks the columns that splits may use, and ``taken [n]`` the rows that are used; None means all.
        """
        g, h = gradients(task.loss, self.margins, self.y, scale)
        growing = grow(self._binned.bins, task.settings, task.outputs, [columns] * task.outputs)
        trees: list[Grown] = answered(growing, partial(self.level, g=g, h=h, taken=taken))
        return trees

    def add(self, trees: list[Grown]) -> None:
        for k, tree in enumerate(trees):
            self.margins[:, k] += tree.value[reached(self._binned.codes, tree.column, tree.left, tree.depth)]


class Validation:
    """Validation rows, whose loss decides when boosting ends and how many trees are kept."""

    def __init__(self, task: TreeTask, start: Forest, rows: Rows, stop: Stop) -> None:
        """``start`` is the forest to which trees are added. The margins of ``rows`` already include the trees of
        ``start``.
        """
        self._task, self._start, self._rows, self._stop = task, start, rows, stop
        # A model without trees is zeros, whatever its first margins will be.
        self._checks = Checks(self._loss(rows.margins if len(start) else np.zeros_like(rows.margins)))

    def ends(self, trees: list[Grown]) -> bool:
        """Add the values of ``trees`` to the margins of validation rows.

        Return whether boosting ends because the loss no longer falls.
        """
        self._rows.add(trees)
        self._checks = self._checks.after(len(self._checks.rounds) + 1, self._loss(self._rows.margins))
        return self._checks.waited(self._stop.tolerance) >= self._stop.patience

    def best(self, forest: Forest) -> Forest:
        """Return ``forest`` without the trees added after the smallest validation loss."""
        checks, start = self._checks, len(self._start)
        if checks.best is None or (start and checks.before <= checks.losses[checks.best]):
            return forest.first(start) if start else forest
        return forest.first(start + (checks.best + 1) * self._task.outputs)

    def _loss(self, margins: Ints) -> float:
        return mean_loss(self._task.loss, margins, self._rows.y, self._start.scale)


def enough(task: TreeTask, y: NDArray[Any]) -> bool:
    """Return whether there are enough validation labels ``y [n]`` to decide how many trees a hospital keeps."""
    least = np.bincount(y, minlength=task.classes).min() if task.classes else len(y)
    return bool(least >= LEAST_LABELS)


def bins_of(task: TreeTask, X: NDArray[Any]) -> Bins:
    """Return the bins of a task's columns, computed from rows ``X [n, F]``."""
    bins: Bins = pooled(find_bins(task), X)
    return bins


def starting(task: TreeTask, y: NDArray[Any]) -> Forest:
    """Return a forest without trees, whose initial margins minimise the loss for labels ``y [n]``."""
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
    held: Held | None = None,
) -> Forest:
    """Grow the trees of a task on rows ``X [n, F]`` with labels ``y [n]``.

    - ``bins``: the bins of the columns; by default computed from ``X``.
    - ``forest``: the trees to which the new trees are added; by default none.
    - ``columns(t)`` returns a mask ``[F]`` of the columns that the trees of boosting step ``t`` may split by; None
      means all.
    - ``rows(t)`` returns a mask ``[n]`` of the rows on which these trees are grown; None means all.
    - ``held``: validation rows, which decide how many trees are kept if there are :func:`enough` of them; by default
      all trees are kept.
    """
    bins = bins_of(task, X) if bins is None else bins
    forest = starting(task, y) if forest is None else forest
    here = Rows(Binned(bins, bins.codes(X)), y, forest.base + forest.steps(X))
    checked = None
    if held is not None and enough(task, held.y):
        margins = forest.base + forest.steps(held.X)
        checked = Validation(task, forest, Rows(Binned(bins, bins.codes(held.X)), held.y, margins), held.stop)
    for t in range(task.together):
        allowed = None if columns is None else columns(t)
        trees = here.grown(task, forest.scale, allowed, None if rows is None else rows(t))
        here.add(trees)
        forest = forest.grown(trees, bins)
        if checked is not None and checked.ends(trees):
            break
    return forest if checked is None else checked.best(forest)
