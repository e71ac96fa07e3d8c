"""Rounds in which hospitals send whole trees: the common part of bagging and cyclic training.

Edges and first margins come from sums, as in :mod:`raysim.strategies.trees.federated`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from raysim.strategies.base import (
    Answers,
    Call,
    Context,
    FederationView,
    Floats,
    Ids,
    Needs,
    Program,
    Reply,
    Send,
    State,
    own_state,
)
from raysim.strategies.trees.base import Trees, TreesState, columns_of, forest_of, row_numbers, rows_key, taken, task_of
from raysim.strategies.trees.federated import prepared
from raysim.trees.binning import Bins
from raysim.trees.boosting import boosted
from raysim.trees.forest import Forest
from raysim.trees.settings import TreeTask
from raysim.trees.stored import Shape

SENDS_TREES = Needs.more("sends each hospital's trees")


@dataclass(frozen=True, eq=False)
class NextTrees(Program):
    """K more trees, which a hospital grows on its own rows to extend the received trees, and then sends."""

    task: TreeTask
    edges: tuple[Floats, ...]
    key: int
    name: str = "next trees"

    @property
    def one(self) -> TreeTask:
        """The task of growing K trees."""
        return one_of(self.task)

    @property
    def sends(self) -> Mapping[str, Send]:
        return {"trees": Send((Shape(self.one).size,), kind="trees", how="each")}

    def run(self, at: Context) -> Reply:
        before, columns = Shape(self.task).forest(at.received["model"]), at.received.get("columns")
        tree = len(before) // self.task.outputs
        after = boosted(
            self.one,
            at.rows.X,
            at.rows.y,
            Bins.between(self.edges, self.task.levels),
            before,
            lambda _: columns,
            lambda _: taken(self.task, self.key, tree, partial(row_numbers, at.rows.X, at.rows.y)),
        )
        return Reply({"trees": Shape(self.one).vector(after.last(self.task.outputs))})


def one_of(task: TreeTask) -> TreeTask:
    """Return the task of growing K trees, with the other settings of ``task``."""
    return replace(task, settings=replace(task.settings, trees=1, own_trees=0))


class SentWhole(Trees):
    """A strategy whose hospitals send whole trees."""

    def ready(self, view: FederationView, state: State) -> Generator[Call, Answers, TreesState]:
        """Return the state with edges and first margins. Raises ``Lost`` if a hospital did not answer."""
        own = own_state(state, TreesState)
        if own.edges:
            return own
        return (yield from prepared(view, own, view.trainable))

    def next_of(
        self, view: FederationView, state: TreesState, ids: Ids
    ) -> Generator[Call, Answers, tuple[list[Forest], Ids]]:
        """Return the next K trees of each hospital that answers, and the ids of these hospitals."""
        task, forest = task_of(view), forest_of(view, state)
        columns = columns_of(view, len(forest) // task.outputs)
        received = {"model": state.models[0]} | ({} if columns is None else {"columns": columns})
        answers = yield Call(NextTrees(task, state.edges, rows_key(view)), received, ids)
        shape = Shape(one_of(task))
        return [shape.forest(vector) for vector in answers.each["trees"]], answers.ids

    def extended(self, view: FederationView, state: TreesState, forest: Forest) -> TreesState:
        """Return the state with ``forest``, the trees so far and those of this round."""
        task, before = task_of(view), forest_of(view, state)
        new = forest.last(len(forest) - len(before))
        settings = replace(task.settings, trees=len(new) // task.outputs, own_trees=0)
        last = {"trees": Shape(replace(task, settings=settings)).vector(new)}
        return replace(state, models=Shape(task).vector(forest)[None], last=last)
