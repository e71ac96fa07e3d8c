"""Trees that a hospital grows alone, on its own rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from raysim.strategies.base import (
    Call,
    Calls,
    Context,
    FederationView,
    Held,
    Keep,
    Program,
    Reply,
    Send,
    State,
    Stop,
    own_state,
)
from raysim.strategies.trees.base import Trees, TreesState, columns_of, row_numbers, rows_key, taken, task_of
from raysim.trees.boosting import bins_of, boosted, starting
from raysim.trees.forest import Forest
from raysim.trees.losses import base, check_counts
from raysim.trees.settings import TreeTask
from raysim.trees.stored import Shape


def grown_alone(task: TreeTask, at: Context, key: int, stop: Stop | None) -> Forest:
    """Grow trees on one hospital's rows; the edges between bins are computed from these rows alone.

    With ``stop``, the loss on validation rows decides how many trees are kept, if the hospital has enough validation
    rows (:func:`raysim.trees.boosting.enough`).

    If a class has no rows, no tree is grown. The model then predicts the shares of the classes, with half a row added
    to each class.
    """
    X, y = at.rows.X, at.rows.y
    if task.classes and (np.bincount(y, minlength=task.classes) == 0).any():
        counts = np.bincount(y, minlength=task.classes).astype(np.float64) + 0.5
        return Forest.start(task, base(task.loss, counts, len(y)))
    if task.loss == "poisson":
        check_counts(y)
    if task.loss == "poisson" and not y.any():
        return Forest.start(task, base(task.loss, np.array([0.5]), len(y)))
    columns = at.received.get("columns")
    return boosted(
        task,
        X,
        y,
        bins_of(task, X),
        starting(task, y),
        None if columns is None else lambda tree: columns[tree],
        lambda tree: taken(task, key, tree, partial(row_numbers, X, y)),
        None if stop is None else Held(at.validation.X, at.validation.y, stop),
    )


@dataclass(frozen=True)
class OwnTrees(Program):
    """A program that grows trees on one hospital's rows; the trees stay at the hospital."""

    task: TreeTask
    key: int
    stop: Stop | None = None
    name: str = "own trees"

    @property
    def validates(self) -> bool:
        return self.stop is not None

    @property
    def sends(self) -> Mapping[str, Send]:
        return {}

    @property
    def keeps(self) -> Mapping[str, Keep]:
        return {"model": Keep((Shape(self.task).size,))}

    def run(self, at: Context) -> Reply:
        return Reply({}, {"model": Shape(self.task).vector(grown_alone(self.task, at, self.key, self.stop))})


@dataclass(frozen=True)
class LocalTrees(Trees):
    """Local training of trees: every hospital grows the model's trees on its own rows, in one round.

    With ``training.stop``, the loss on validation rows decides how many trees a hospital keeps, if it has enough
    validation rows (:func:`raysim.trees.boosting.enough`).
    """

    title: ClassVar[str] = "Training alone"
    alone: ClassVar[bool] = True
    is_reference: ClassVar[bool] = True
    serves = ("personal",)

    def stops_early(self) -> bool:
        return False

    def stops_alone(self) -> bool:
        return True

    def round(self, view: FederationView, state: State) -> Calls:
        task = task_of(view)
        each = [columns_of(view, tree) for tree in range(task.together)]
        received = (
            {} if each[0] is None else {"columns": np.stack([columns for columns in each if columns is not None])}
        )
        yield Call(OwnTrees(task, rows_key(view), view.stop), received, view.trainable)
        return replace(own_state(state, TreesState), edges=(np.zeros(0),))

    def done(self, view: FederationView, state: State) -> bool:
        return isinstance(state, TreesState) and bool(state.edges)

    def facts(self, view: FederationView, state: State) -> dict[str, float]:
        return {}
