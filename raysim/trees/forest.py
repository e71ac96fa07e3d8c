"""Grown trees as they are stored, written as JSON, and score rows.

A stored model is a flat vector like that of any other model. It is cut into these tensors (:class:`Shape`), where T
trees stand one behind the other (of more than two classes, tree ``t`` is of class ``t mod K``), each with room for
``I = 2^depth - 1`` splits and ``N = 2 I + 1`` nodes. Node ``i`` has the children ``2 i + 1`` (left) and ``2 i + 2``.

==========  ============  =============================================================================================
count       ``[1]``       how many trees there are; behind them all is 0
scale       ``[1]``       margins are times ``2^scale``: 0 but for labels that are numbers
base        ``[K, 2]``    the margins before the first tree, as two parts
column      ``[T, I]``    the column that a node is split by, counted from 1; 0: it is not split
threshold   ``[T, I]``    a number goes left up to here; ``3.4e38``: all do
missing     ``[T, I]``    1 where missing values go left
levels      ``[T, I, w]``  of categories the sets that go left, 16 levels a number; left out without categories
value       ``[T, N, 2]``  the value of a leaf, as two parts
gain        ``[T, I]``    of a split; ``hessian`` and ``rows`` ``[T, N]``: sums over the training rows of a node
==========  ============  =============================================================================================

A number in two parts is ``(high * 2^24 + low) * 2^-40``. All entries are exact in single precision but gains and
sums, which score nothing. A vector of zeros has no tree, and the margin 0 for each row.

:meth:`Forest.tree` is the same as plain JSON, with numbers as they are: what exports start from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.trees.binning import Bins
from raysim.trees.edges import Floats, Ints
from raysim.trees.growing import Grown
from raysim.trees.losses import GRID
from raysim.trees.settings import TreeTask

FORMAT = 1

OF_TREES = ("column", "threshold", "missing_left", "levels", "value", "gain", "hessian", "rows")
"""The arrays of a forest that have an entry for each tree."""

PART = 2**24
"""Numbers below it are exact in single precision."""

WORD = 16
"""Levels in one number of a set."""

BEYOND = float(np.finfo(np.float32).max)
"""Stands for an infinite threshold in a vector, whose entries are finite."""

BLOCK = 2**14
"""Rows that are scored together, so that what is at work stays in the cache."""


@dataclass(frozen=True)
class Shape:
    """How the vector of a task's model is cut into tensors."""

    task: TreeTask

    @property
    def trees(self) -> int:
        """T, with room for those that a hospital adds."""
        return (self.task.together + self.task.settings.own_trees) * self.task.outputs

    @property
    def splits(self) -> int:
        """I."""
        return int(2**self.task.settings.depth) - 1

    @property
    def nodes(self) -> int:
        """N."""
        return 2 * self.splits + 1

    @property
    def words(self) -> int:
        """The numbers of a set of levels; 0 without categories."""
        return -(-max(self.task.levels, default=0) // WORD)

    @cached_property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """The shape of each tensor, by name and in order."""
        T, inner, N = self.trees, self.splits, self.nodes
        sets = {"levels": (T, inner, self.words)} if self.words else {}
        return {
            "count": (1,),
            "scale": (1,),
            "base": (self.task.outputs, 2),
            "column": (T, inner),
            "threshold": (T, inner),
            "missing": (T, inner),
            **sets,
            "value": (T, N, 2),
            "gain": (T, inner),
            "hessian": (T, N),
            "rows": (T, N),
        }

    @property
    def size(self) -> int:
        """P."""
        return sum(math.prod(shape) for shape in self.tensors.values())

    def vector(self, forest: Forest) -> Floats:
        """A ``forest`` of at most T trees as a vector ``[P]``."""
        count = len(forest.column)
        columns: dict[str, NDArray[Any]] = {
            "count": np.array([count]),
            "scale": np.array([forest.scale]),
            "base": _parts(forest.base),
            "column": forest.column + 1,
            "threshold": np.minimum(forest.threshold, BEYOND),
            "missing": forest.missing_left,
            "levels": forest.levels,
            "value": _parts(forest.value),
            "gain": forest.gain,
            "hessian": forest.hessian,
            "rows": forest.rows,
        }
        made = np.zeros(self.size)
        at = 0
        for name, shape in self.tensors.items():
            values = np.asarray(columns[name], np.float64).ravel()
            made[at : at + len(values)] = values
            at += math.prod(shape)
        return made

    def forest(self, vector: NDArray[Any]) -> Forest:
        """The inverse of :meth:`vector`."""
        parts, at = {}, 0
        for name, shape in self.tensors.items():
            parts[name] = vector[at : at + math.prod(shape)].astype(np.float64).reshape(shape)
            at += math.prod(shape)
        count = int(parts["count"][0])
        trees = {name: values[:count] for name, values in parts.items() if name not in ("count", "scale", "base")}
        threshold = trees["threshold"]
        return Forest(
            task=self.task,
            scale=int(parts["scale"][0]),
            base=_whole(parts["base"]),
            column=trees["column"].astype(np.int16) - np.int16(1),
            threshold=np.where(threshold >= BEYOND, np.inf, threshold),
            missing_left=trees["missing"] > 0,
            levels=trees["levels"].astype(np.int32) if self.words else np.zeros((count, self.splits, 0), np.int32),
            value=_whole(trees["value"]),
            gain=trees["gain"],
            hessian=trees["hessian"],
            rows=trees["rows"],
        )


def _parts(values: Ints) -> Floats:
    return np.stack([values // PART, values % PART], axis=-1).astype(np.float64)


def _whole(parts: Floats) -> Ints:
    return parts[..., 0].astype(np.int64) * PART + parts[..., 1].astype(np.int64)


@dataclass(frozen=True, eq=False)
class Forest:
    """T trees of a task and the margins before the first; names and shapes are those of the module's table.

    ``column`` is -1 where a node is not split, ``threshold`` infinite where all numbers go left. ``base`` and ``value``
    are whole numbers of ``2^(scale - 40)``.
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
        """No tree yet."""
        shape = Shape(task)
        inner, N = (0, shape.splits), (0, shape.nodes)
        return Forest(
            task=task,
            scale=scale,
            base=base,
            column=np.zeros(inner, np.int16),
            threshold=np.zeros(inner),
            missing_left=np.zeros(inner, np.bool_),
            levels=np.zeros((*inner, shape.words), np.int32),
            value=np.zeros(N, np.int64),
            gain=np.zeros(inner),
            hessian=np.zeros(N),
            rows=np.zeros(N),
        )

    def __len__(self) -> int:
        """T."""
        return len(self.column)

    def grown(self, trees: Sequence[Grown], bins: Bins) -> Forest:
        """With further ``trees``, whose columns are cut into these ``bins``."""
        made = Forest.start(self.task, self.base, self.scale)
        parts = [_stored(tree, bins, made.levels.shape[-1]) for tree in trees]
        joined: dict[str, Any] = {}
        for name in OF_TREES:
            before = getattr(self, name)
            # Trees may be less deep than there is room for: their nodes are the first.
            further = np.full((len(trees), *before.shape[1:]), -1 if name == "column" else 0, before.dtype)
            for t, part in enumerate(parts):
                further[t, : len(part[name])] = part[name]
            joined[name] = np.concatenate([before, further])
        return replace(self, **joined)

    def last(self, count: int) -> Forest:
        """The last ``count`` trees alone."""
        return replace(self, **{name: getattr(self, name)[len(self) - count :] for name in OF_TREES})

    def joined(self, other: Forest, factor: float = 1.0) -> Forest:
        """With the trees of ``other`` behind, whose values are multiplied by ``factor``."""
        further = {name: getattr(other, name) for name in OF_TREES}
        further["value"] = np.rint(other.value * factor).astype(np.int64)
        joined: dict[str, Any] = {name: np.concatenate([getattr(self, name), further[name]]) for name in OF_TREES}
        return replace(self, **joined)

    def margins(self, X: NDArray[Any]) -> Floats:
        """The margins of rows ``X [n, F]``, ``[n, K]``: log-odds, logits, numbers, or logarithms of means."""
        made = np.empty((len(X), self.task.outputs))
        for first in range(0, len(X), BLOCK):
            made[first : first + BLOCK] = self._steps(X[first : first + BLOCK]) * 2.0 ** (self.scale - 40)
        return made

    def _steps(self, X: NDArray[Any]) -> Ints:
        n, K = len(X), self.task.outputs
        steps = np.repeat(self.base[None, :], n, axis=0)
        for tree in range(len(self)):
            steps[:, tree % K] += self.value[tree, self._leaves(X, tree)]
        return steps

    def _leaves(self, X: NDArray[Any], tree: int) -> Ints:
        """The leaf of each row, ``[n]``."""
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
        """Whether categories are among the column's, ``[n]``."""
        known: NDArray[np.bool_] = (values >= 0) & (values < np.array(self.task.levels)[by])
        return known

    def _in_set(self, tree: int, at: Ints, by: NDArray[Any], values: NDArray[Any]) -> NDArray[np.bool_]:
        code = np.where(self._known(by, values), values, 0).astype(np.int64)
        word = np.minimum(code // WORD, self.levels.shape[-1] - 1)
        inside: NDArray[np.bool_] = (self.levels[tree, at, word] >> (code % WORD)) & 1 > 0
        return inside

    def tree(self, names: Sequence[str] = ()) -> dict[str, Any]:
        """The forest as JSON values; ``names [F]`` are the columns'.

        Leaves have a ``value``, which is added to the margin of ``class`` (0 where there is one margin); other nodes
        a ``column`` and either ``at_most`` (null: infinite) or ``levels``, what goes ``left`` or else ``right``.
        """
        unit = 2.0 ** (self.scale - 40)
        return {
            "format": FORMAT,
            "loss": self.task.loss,
            "columns": list(names) or [f"x{f + 1}" for f in range(len(self.task.levels))],
            "levels": list(self.task.levels),
            "base": [int(value) * unit for value in self.base],
            "trees": [
                {"class": t % self.task.outputs, "nodes": [self._node(t, node, unit) for node in self._nodes(t)]}
                for t in range(len(self))
            ],
        }

    def _nodes(self, tree: int) -> list[int]:
        """The nodes that a tree has."""
        found, inner = [0], self.column.shape[1]
        for node in found:
            if node < inner and self.column[tree, node] >= 0:
                found += [2 * node + 1, 2 * node + 2]
        return sorted(found)

    def _node(self, t: int, node: int, unit: float) -> dict[str, Any]:
        known = {"node": node, "rows": int(self.rows[t, node]), "hessian": float(self.hessian[t, node])}
        if node >= self.column.shape[1] or self.column[t, node] < 0:
            return known | {"value": int(self.value[t, node]) * unit}
        column = int(self.column[t, node])
        if self.task.levels[column]:
            levels = [c for c in range(self.task.levels[column]) if self.levels[t, node, c // WORD] >> (c % WORD) & 1]
            by: dict[str, Any] = {"levels": levels}
        else:
            at = float(self.threshold[t, node])
            by = {"at_most": at if math.isfinite(at) else None}
        sides = {"missing": "left" if self.missing_left[t, node] else "right", "gain": float(self.gain[t, node])}
        return known | {"column": column} | by | sides | {"left": 2 * node + 1, "right": 2 * node + 2}


def _stored(tree: Grown, bins: Bins, words: int) -> dict[str, NDArray[Any]]:
    """A grown tree as entries of a forest."""
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
        # In single precision, as a run may store them: sums and gains inform, and score nothing.
        "hessian": (tree.sums[:, 1] / GRID).astype(np.float32).astype(np.float64),
        "rows": tree.sums[:, 2],
    }
