"""The common part of strategies for boosted trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import FederationView, Floats, Ids, Mask, State, Strategy, Training, own_state
from raysim.trees.forest import Forest
from raysim.trees.growing import Grown
from raysim.trees.settings import TreeTask
from raysim.trees.stored import Shape

_STEP = 0x9E3779B97F4A7C15
"""The step between two states of the random number generator splitmix64."""


@dataclass(frozen=True, eq=False)
class TreesState(State):
    """The state of boosted trees. Row 0 of ``models`` contains the trees."""

    edges: tuple[Floats, ...] = ()
    """The edges between bins, one array for each column; empty before the first round and with random splits. After its
    round, local training stores one empty array instead."""
    last: dict[str, NDArray[Any]] | None = None
    """The trees that the last round added, as arrays to send; None if there are none. Hospitals have not yet added the
    values of these trees to stored predictions."""


class Trees(Strategy):
    """A strategy that grows trees. All hospitals with training rows take part, and there are no gradient steps."""

    takes_trees: ClassVar[bool] = True

    def check_training(self, training: Training) -> None:
        if training.weighted:
            raise ValueError("training.class_weights: trees give all rows the same weight; set it to none")
        task = training.trees
        if task is not None and task.classes and task.settings.loss != "auto":
            raise ValueError(
                f"model.loss: {task.settings.loss} is for a label that is a number, and data.label has {task.classes} "
                "classes; set auto"
            )

    def uses_selection(self) -> bool:
        return False

    def uses_training(self) -> bool:
        return False

    def unused_training(self) -> frozenset[str]:
        return super().unused_training() | {"rounds"}

    def stops_early(self) -> bool:
        return True

    def select(self, view: FederationView, state: State, round: int) -> Ids:
        return view.trainable

    def setup(self, view: FederationView) -> State:
        return TreesState(models=view.initial[None].copy())

    def done(self, view: FederationView, state: State) -> bool:
        return steps_of(view, state) >= task_of(view).together

    def news(self, view: FederationView, state: State, row: int) -> Sequence[tuple[NDArray[Any], Ids]]:
        # Hospitals store the margins of their validation rows, so the trees of the last round are enough.
        last, everyone = self.last(own_state(state, TreesState), row) or {}, np.arange(len(view.sizes))
        return [(array, everyone) for array in last.values()]

    def last(self, state: TreesState, row: int) -> dict[str, NDArray[Any]] | None:
        """Return the trees that the last round added to the model in ``row``, as arrays to send."""
        return state.last

    def facts(self, view: FederationView, state: State) -> dict[str, float]:
        return {"trees": float(steps_of(view, state) * task_of(view).outputs)}


def task_of(view: FederationView) -> TreeTask:
    """Return the task of growing trees: the label, the columns and the settings of trees.

    Raises ``TypeError`` if the model is not boosted trees.
    """
    if view.trees is None:
        raise TypeError("model.name: is not boosted_trees, but this strategy grows trees; choose boosted_trees")
    return view.trees


def forest_of(view: FederationView, state: State) -> Forest:
    """Return the trees that the model has so far."""
    return Shape(task_of(view)).forest(own_state(state, TreesState).models[0])


def steps_of(view: FederationView, state: State) -> int:
    """Return the number of boosting steps so far.

    A step adds one tree, or one per class if there are more than two classes.
    """
    return Shape(task_of(view)).count(own_state(state, TreesState).models[0]) // task_of(view).outputs


def sent(trees: Sequence[Grown]) -> dict[str, NDArray[Any]]:
    """Return the arrays in which trees are sent; each array has one row per tree.

    ``column`` is the column of each split, and ``left`` a mask of the bins that go to the left child, as packed bits.
    ``value`` is the value of each node, which is 0 except for leaves.
    """
    return {
        "column": np.stack([tree.column for tree in trees]),
        "left": np.packbits(np.stack([tree.left for tree in trees]), axis=2),
        "value": np.stack([tree.value for tree in trees]),
    }


def unpacked(received: Mapping[str, NDArray[Any]]) -> list[tuple[NDArray[Any], NDArray[np.bool_]]]:
    """Return ``column [I]`` and ``left [I, L]`` of each received tree, as in :class:`raysim.trees.growing.Grown`.

    L is rounded up to a multiple of 8, because bits were sent as bytes.
    """
    left = np.unpackbits(received["left"], axis=2).astype(np.bool_)
    return list(zip(received["column"], left, strict=True))


def columns_of(view: FederationView, tree: int) -> Mask | None:
    """Return a mask ``[F]`` of the columns that the trees of boosting step ``tree`` may use in splits; None means
    all."""
    task = task_of(view)
    share, F = task.settings.column_share, len(task.levels)
    if share >= 1:
        return None
    chosen = np.zeros(F, np.bool_)
    chosen[view.rng("columns of trees", tree).permutation(F)[: max(1, round(share * F))]] = True
    return chosen


def rows_key(view: FederationView) -> int:
    return int(view.rng("rows of trees").integers(2**62))


def taken(task: TreeTask, key: int, tree: int, numbers: Callable[[], NDArray[np.uint64]]) -> Mask | None:
    """Return a mask ``[n]`` of the rows on which the trees of boosting step ``tree`` are grown; None means all rows.

    ``key`` is the seed, and ``numbers()`` returns the :func:`row_numbers`.
    """
    share = task.settings.row_share
    return None if share >= 1 else hashed(key, tree, numbers()) < share


def row_numbers(X: NDArray[Any], y: NDArray[Any]) -> NDArray[np.uint64]:
    """Return a number for each of n rows that depends only on the row's features ``X`` and label ``y``."""
    columns = X.astype(np.float32) + np.float32(0)  # -0 is 0
    columns[np.isnan(columns)] = np.nan  # one bit pattern for all
    numbers = _mixed((y.astype(np.float64) + 0.0).view(np.uint64))
    for column in np.ascontiguousarray(columns.T).view(np.uint32):
        numbers = _mixed(numbers ^ column)
    return numbers


def hashed(key: int, tree: int, numbers: NDArray[Any]) -> Floats:
    """Return a pseudo-random number between 0 and 1 for each entry of ``numbers``.

    It depends only on ``key``, ``tree`` and the entry.
    """
    with np.errstate(over="ignore"):
        z = numbers.astype(np.uint64) + np.uint64((key + tree * _STEP) % 2**64)
    return _finished(z).astype(np.float64) / 2.0**64


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        return _finished(z + np.uint64(_STEP))


def _finished(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(z ^ (z >> np.uint64(31)))
