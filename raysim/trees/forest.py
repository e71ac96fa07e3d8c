"""The trees of a model: how they are stored together, and how they score rows.

The arrays of a tree have ``I = 2^depth - 1`` splits and ``N = 2 I + 1`` nodes. Nodes are numbered as in a heap: node
``i`` has the children ``2 i + 1`` (left) and ``2 i + 2``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats, Ints
from raysim.trees.binning import Bins
from raysim.trees.growing import Grown
from raysim.trees.losses import GRID
from raysim.trees.settings import TreeTask

OF_TREES = ("column", "threshold", "missing_left", "levels", "value", "gain", "hessian", "rows")
"""The fields of a :class:`Forest` whose first axis has an entry for each tree."""

WORD = 16
"""The number of categories that one integer stores, one bit each."""

BLOCK = 2**14
"""The number of rows scored together, so that working memory stays in the cache."""


def words_of(task: TreeTask) -> int:
    """Return the number of integers that store a node's set of categories; 0 if all columns are numbers."""
    return -(-max(task.levels, default=0) // WORD)


@dataclass(frozen=True, eq=False)
class Forest:
    """The ``T`` trees of a model, and the initial margins, which are the same for all rows.

    Fields are as in :mod:`raysim.trees.stored`, with these differences:

    - ``column [T, I]`` counts from 0, and is -1 for a node that is not split.
    - ``threshold [T, I]`` is infinite if all numbers go left.
    - ``missing_left [T, I]`` has the name ``missing`` in that module.
    - ``base [K]`` and ``value [T, N]`` are integers in units of ``2^(scale - 40)``.
    """

    task: TreeTask
    scale: int
    base: Ints
    column: NDArray[np.int16]
    threshold: Floats
    missing_left: NDArray[np.bool_]
    levels: NDArray[np.int32]
    value: Ints
    gain: Floats
    hessian: Floats
    rows: Floats

    @staticmethod
    def start(task: TreeTask, base: Ints, scale: int = 0) -> Forest:
        """Return a forest without trees, in which all rows have the margins ``base``."""
        inner, N = (0, task.splits), (0, task.nodes)
        return Forest(
            task=task,
            scale=scale,
            base=base,
            column=np.zeros(inner, np.int16),
            threshold=np.zeros(inner),
            missing_left=np.zeros(inner, np.bool_),
            levels=np.zeros((*inner, words_of(task)), np.int32),
            value=np.zeros(N, np.int64),
            gain=np.zeros(inner),
            hessian=np.zeros(N),
            rows=np.zeros(N),
        )

    def __len__(self) -> int:
        """Return the number of trees, ``T``."""
        return len(self.column)

    def grown(self, trees: Sequence[Grown], bins: Bins) -> Forest:
        """Return this forest with additional ``trees``, which were grown on ``bins``."""
        made = Forest.start(self.task, self.base, self.scale)
        parts = [_stored(tree, bins, made.levels.shape[-1]) for tree in trees]
        joined: dict[str, Any] = {}
        for name in OF_TREES:
            before = getattr(self, name)
            # Trees may be less deep than the arrays allow: their nodes come first.
            further = np.full((len(trees), *before.shape[1:]), -1 if name == "column" else 0, before.dtype)
            for t, part in enumerate(parts):
                further[t, : len(part[name])] = part[name]
            joined[name] = np.concatenate([before, further])
        return replace(self, **joined)

    def first(self, count: int) -> Forest:
        """Return a forest of only the first ``count`` trees."""
        return replace(self, **{name: getattr(self, name)[:count] for name in OF_TREES})

    def last(self, count: int) -> Forest:
        """Return a forest of only the last ``count`` trees."""
        return replace(self, **{name: getattr(self, name)[len(self) - count :] for name in OF_TREES})

    def joined(self, other: Forest, factor: float = 1.0) -> Forest:
        """Return this forest with the trees of ``other`` added, their leaf values multiplied by ``factor``."""
        further = {name: getattr(other, name) for name in OF_TREES}
        further["value"] = np.rint(other.value * factor).astype(np.int64)
        joined: dict[str, Any] = {name: np.concatenate([getattr(self, name), further[name]]) for name in OF_TREES}
        return replace(self, **joined)

    def margins(self, X: NDArray[Any]) -> Floats:
        """Return the ``K`` outputs for rows ``X [n, F]``, ``[n, K]``.

        Outputs are log-odds of class 1, logits, real-valued predictions, or logarithms of expected counts.
        """
        made = np.empty((len(X), self.task.outputs))
        for first in range(0, len(X), BLOCK):
            steps = self.base + self.steps(X[first : first + BLOCK])
            made[first : first + BLOCK] = steps * 2.0 ** (self.scale - 40)
        return made

    def steps(self, X: NDArray[Any]) -> Ints:
        """Return the sum of the trees' values for each row of ``X [n, F]`` and each output, ``[n, K]``.

        Sums are integers in units of ``2^(scale - 40)``, without the initial margins.
        """
        K = self.task.outputs
        steps = np.zeros((len(X), K), np.int64)
        for tree in range(len(self)):
            steps[:, tree % K] += self.value[tree, self._leaves(X, tree)]
        return steps

    def _leaves(self, X: NDArray[Any], tree: int) -> Ints:
        column, inner = self.column[tree], self.column.shape[1]
        node = np.zeros(len(X), np.int64)
        moving = np.arange(len(X)) if len(column) and column[0] >= 0 else np.zeros(0, np.int64)
        while len(moving):
            at = node[moving]
            by = column[at]
            values = X[moving, by]
            goes = values <= self.threshold[tree, at]
            if self._has_levels:
                goes = np.where(self._categorical[by], self._in_set(tree, at, by, values), goes)
            missing = np.isnan(values) | (self._categorical[by] & ~self._known(by, values))
            goes = np.where(missing, self.missing_left[tree, at], goes)
            node[moving] = at = 2 * at + 2 - goes
            inside = at < inner
            inside[inside] = column[at[inside]] >= 0
            moving = moving[inside]
        return node

    @cached_property
    def _has_levels(self) -> bool:
        return any(self.task.levels)

    @cached_property
    def _categorical(self) -> NDArray[np.bool_]:
        return np.array(self.task.levels) > 0

    def _known(self, by: NDArray[Any], values: NDArray[Any]) -> NDArray[np.bool_]:
        known: NDArray[np.bool_] = (values >= 0) & (values < np.array(self.task.levels)[by])
        return known

    def _in_set(self, tree: int, at: Ints, by: NDArray[Any], values: NDArray[Any]) -> NDArray[np.bool_]:
        code = np.where(self._known(by, values), values, 0).astype(np.int64)
        word = np.minimum(code // WORD, self.levels.shape[-1] - 1)
        inside: NDArray[np.bool_] = (self.levels[tree, at, word] >> (code % WORD)) & 1 > 0
        return inside


def _stored(tree: Grown, bins: Bins, words: int) -> dict[str, NDArray[Any]]:
    inner = len(tree.column)
    threshold, missing, levels = np.zeros(inner), np.zeros(inner, np.bool_), np.zeros((inner, words), np.int32)
    for node in np.flatnonzero(tree.column >= 0).tolist():
        column = int(tree.column[node])
        size = int(bins.sizes[column])
        missing[node] = tree.left[node, size]
        if bins.levels[column]:
            for code in np.flatnonzero(tree.left[node, :size]).tolist():
                levels[node, code // WORD] |= 1 << (code % WORD)
        else:
            threshold[node] = bins.threshold(column, int(tree.bin[node]))
    return {
        "column": tree.column,
        "threshold": threshold,
        "missing_left": missing,
        "levels": levels,
        "value": tree.value,
        "gain": tree.gain,
        # Sums are rounded to single precision, as a run may store them: no score depends on sums or gains.
        "hessian": (tree.sums[:, 1] / GRID).astype(np.float32).astype(np.float64),
        "rows": tree.sums[:, 2],
    }
