"""What strategies for boosted trees have in common: whom they ask, what they refuse, and the trees on the wire."""

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
"""Between two numbers of splitmix64."""


@dataclass(frozen=True, eq=False)
class TreesState(State):
    """Row 0 of the models holds the trees."""

    edges: tuple[Floats, ...] = ()
    """The edges of each column's bins, ``[F]``; empty before the first round."""
    last: dict[str, NDArray[Any]] | None = None
    """The trees of the last round as they travel (:func:`sent`), which hospitals have not added to their margins."""


class Trees(Strategy):
    """A strategy that grows trees: all hospitals take part, and nothing is learned by steps."""

    takes_trees: ClassVar[bool] = True

    def check_training(self, training: Training) -> None:
        if training.weighted:
            raise ValueError("training.class_weights: trees count all rows alike; set none")
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

    def stops_early(self) -> bool:
        return True

    def remark(self, sizes: Ids) -> str:
        return "all hospitals take part; selection, rounds, learning rate, batches and local epochs are not used"

    def select(self, view: FederationView, state: State, round: int) -> Ids:
        return view.trainable

    def setup(self, view: FederationView) -> State:
        return TreesState(models=view.initial[None].copy())

    def done(self, view: FederationView, state: State) -> bool:
        return len(forest_of(view, state)) >= task_of(view).together * task_of(view).outputs

    def facts(self, view: FederationView, state: State) -> dict[str, float]:
        return {"trees": float(len(forest_of(view, state)))}


def task_of(view: FederationView) -> TreeTask:
    """What trees are grown for."""
    if view.trees is None:
        raise TypeError("the model is not boosted trees")
    return view.trees


def forest_of(view: FederationView, state: State) -> Forest:
    """The trees so far."""
    return Shape(task_of(view)).forest(own_state(state, TreesState).models[0])


def sent(trees: Sequence[Grown]) -> dict[str, NDArray[Any]]:
    """``K`` trees, grown or half grown, as they travel: the column of each split and which of its bins go left, in
    bits; the value of each leaf."""
    return {
        "column": np.stack([tree.column for tree in trees]),
        "left": np.packbits(np.stack([tree.left for tree in trees]), axis=2),
        "value": np.stack([tree.value for tree in trees]),
    }


def unpacked(received: Mapping[str, NDArray[Any]]) -> list[tuple[NDArray[Any], NDArray[np.bool_]]]:
    """The splits of each tree that travelled: ``column [I]`` and ``left [I, L]``."""
    left = np.unpackbits(received["left"], axis=2).astype(np.bool_)
    return list(zip(received["column"], left, strict=True))


def columns_of(view: FederationView, tree: int) -> Mask | None:
    """Which columns the ``tree``-th trees may be split by, ``[F]``; None: all."""
    task = task_of(view)
    share, F = task.settings.column_share, len(task.levels)
    if share >= 1:
        return None
    chosen = np.zeros(F, np.bool_)
    chosen[view.rng("columns of trees", tree).permutation(F)[: max(1, round(share * F))]] = True
    return chosen


def rows_key(view: FederationView) -> int:
    """What decides which rows each tree is grown on."""
    return int(view.rng("rows of trees").integers(2**62))


def taken(task: TreeTask, key: int, tree: int, numbers: Callable[[], NDArray[np.uint64]]) -> Mask | None:
    """Which of the rows with ``numbers() [n]`` the ``tree``-th trees are grown on; None: all."""
    share = task.settings.row_share
    return None if share >= 1 else hashed(key, tree, numbers()) < share


def row_numbers(X: NDArray[Any], y: NDArray[Any]) -> NDArray[np.uint64]:
    """A number for each of the rows ``X [n, F]`` with labels ``y [n]``, ``[n]``, by their content alone.

    It is the same at any hospital, and at any place among the rows. Rows that are alike have the same number.
    """
    columns = X.astype(np.float32) + np.float32(0)  # -0 is 0
    columns[np.isnan(columns)] = np.nan  # all in the same bits
    numbers = _mixed((y.astype(np.float64) + 0.0).view(np.uint64))
    for column in np.ascontiguousarray(columns.T).view(np.uint32):
        numbers = _mixed(numbers ^ column)
    return numbers


def hashed(key: int, tree: int, numbers: NDArray[Any]) -> Floats:
    """A number between 0 and 1 for each row ``numbers [n]`` of a tree, which depends on nothing else."""
    with np.errstate(over="ignore"):
        z = numbers.astype(np.uint64) + np.uint64((key + tree * _STEP) % 2**64)
    return _finished(z).astype(np.float64) / 2.0**64


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The next number after each of ``z`` (splitmix64)."""
    with np.errstate(over="ignore"):
        return _finished(z + np.uint64(_STEP))


def _finished(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    mixed: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed
