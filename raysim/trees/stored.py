"""Trees as a flat vector of parameters, the form in which a model is stored.

The vector consists of the tensors below, in this order (:class:`Shape`). ``T`` is the largest number of trees. The
model has K outputs: one for each class, but only one for two classes or a numeric label. Tree ``t`` belongs to output
``t mod K``. Each tree has entries for ``I = 2^depth - 1`` splits and ``N = 2 I + 1`` nodes. Node ``i`` has the children
``2 i + 1`` (left) and ``2 i + 2``.

==========  ============  =============================================================================================
count       ``[1]``       the number of trees; all entries after the last tree are 0
scale       ``[1]``       margins are multiplied by ``2^scale``; 0 except for numeric labels
base        ``[K, 2]``    the margins before the first tree, in two parts
column      ``[T, I]``    the column that splits a node, counted from 1; 0: the node is not split
threshold   ``[T, I]``    the largest number that goes left; ``3.4e38``: all numbers go left
missing     ``[T, I]``    1 if missing values go left
levels      ``[T, I, w]``  the set of categories that go left, 16 per number; omitted without categories
value       ``[T, N, 2]``  the value of a leaf, in two parts
gain        ``[T, I]``    the gain of a split; ``hessian``, ``rows`` ``[T, N]``: sums over a node's training rows.
                          All three are 0 for trees with random splits, for which they are not computed
==========  ============  =============================================================================================

A number in two parts is ``(high * 2^24 + low) * 2^-40``. All entries are exact in single precision, except gains
and sums, on which no output of the model depends. A vector of zeros means no trees, and margin 0 for each row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats, Ints
from raysim.trees.forest import Forest, words_of
from raysim.trees.settings import TreeTask

PART = 2**24
"""The base in which a large whole number is stored as two numbers, each exact in single precision."""

BEYOND = float(np.finfo(np.float32).max)
"""The number that is stored for an infinite threshold."""


@dataclass(frozen=True)
class Shape:
    """The shapes and the order of the tensors in the vector of a model of trees."""

    task: TreeTask

    @property
    def trees(self) -> int:
        """Return the largest number of trees of a model, ``T``, including the trees that a hospital adds."""
        return (self.task.together + self.task.settings.own_trees) * self.task.outputs

    @cached_property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each tensor by name, in the order of the vector."""
        T, inner, N, words = self.trees, self.task.splits, self.task.nodes, words_of(self.task)
        sets = {"levels": (T, inner, words)} if words else {}
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
        """Return the length of the vector, ``P``."""
        return sum(math.prod(shape) for shape in self.tensors.values())

    def vector(self, forest: Forest) -> Floats:
        """Return a ``forest`` of at most T trees as a vector ``[P]``."""
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

    @staticmethod
    def count(vector: NDArray[Any]) -> int:
        """Return the number of trees that a ``vector [P]`` stores."""
        return int(vector[0])

    def forest(self, vector: NDArray[Any]) -> Forest:
        """Return the forest that :meth:`vector` stored in a ``vector [P]``."""
        parts, at = {}, 0
        for name, shape in self.tensors.items():
            parts[name] = vector[at : at + math.prod(shape)].astype(np.float64).reshape(shape)
            at += math.prod(shape)
        count = self.count(vector)
        trees = {name: values[:count] for name, values in parts.items() if name not in ("count", "scale", "base")}
        threshold = trees["threshold"]
        return Forest(
            task=self.task,
            scale=int(parts["scale"][0]),
            base=_whole(parts["base"]),
            column=trees["column"].astype(np.int16) - np.int16(1),
            threshold=np.where(threshold >= BEYOND, np.inf, threshold),
            missing_left=trees["missing"] > 0,
            levels=trees.get("levels", np.zeros((count, self.task.splits, 0))).astype(np.int32),
            value=_whole(trees["value"]),
            gain=trees["gain"],
            hessian=trees["hessian"],
            rows=trees["rows"],
        )


def _parts(values: Ints) -> Floats:
    return np.stack([values // PART, values % PART], axis=-1).astype(np.float64)


def _whole(parts: Floats) -> Ints:
    return parts[..., 0].astype(np.int64) * PART + parts[..., 1].astype(np.int64)
