"""Rounds in which hospitals send whole trees: the common part of bagging and cyclic training.

Edges between bins and the prediction before the first tree are as in :mod:`raysim.strategies.trees.federated`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Ints
from raysim.strategies.base import (
    Answers,
    Call,
    Context,
    FederationView,
    Floats,
    Ids,
    Keep,
    Needs,
    Program,
    Reply,
    Send,
    State,
    own_state,
)
from raysim.strategies.trees.base import (
    Trees,
    TreesState,
    columns_of,
    forest_of,
    row_numbers,
    rows_key,
    steps_of,
    taken,
    task_of,
)
from raysim.strategies.trees.federated import Lost, prepared
from raysim.trees.binning import Bins
from raysim.trees.boosting import Rows
from raysim.trees.forest import Forest
from raysim.trees.histograms import Binned
from raysim.trees.settings import TreeTask
from raysim.trees.stored import Shape

SENDS_TREES = Needs.more("sends each hospital's trees")


@dataclass(frozen=True, eq=False)
class NextTrees(Program):
    """The trees of one boosting step, which a hospital grows on its own rows and then sends.

    For each row, the hospital stores the margins: ``base`` (the prediction without trees) plus the values of the trees.
    These margins do not yet include the trees of the last ``lacking`` boosting steps, which the hospital receives.
    """

    task: TreeTask
    edges: tuple[Floats, ...]
    base: Ints
    scale: int
    tree: int
    lacking: int
    key: int
    known: Floats | None = None
    """The lacking trees, if the hospital already received them for its validation rows; None if the call sends them."""
    name: str = "next trees"

    @property
    def sends(self) -> Mapping[str, Send]:
        return {"trees": Send((Shape(sized(self.task, 1)).size,), kind="trees", how="each")}

    @property
    def keeps(self) -> Mapping[str, Keep]:
        return {"margins": Keep(("n", len(self.base)), "i8"), "grown": Keep((), "i8")}

    def run(self, at: Context) -> Reply:
        X, y, K = at.rows.X, at.rows.y, self.task.outputs
        bins = Bins.between(self.edges, self.task.levels)
        margins = at.memory.get("margins", np.broadcast_to(self.base, (len(y), K)))
        if self.lacking:
            lacked = at.received["trees"] if self.known is None else self.known
            news = Shape(sized(self.task, self.lacking)).forest(lacked)
            # If a round is repeated because another hospital was lost, a hospital has already added some of them.
            margins = margins + news.last((self.tree - int(at.memory.get("grown", 0))) * K).steps(X)
        here = Rows(Binned(bins, at.cache(f"codes {bins.digest}", lambda: bins.codes(X))), y, margins)
        chosen = taken(self.task, self.key, self.tree, partial(row_numbers, X, y))
        trees = here.grown(self.task, self.scale, at.received.get("columns"), chosen)
        one = sized(self.task, 1)
        sent = Shape(one).vector(Forest.start(one, self.base, self.scale).grown(trees, bins))
        return Reply({"trees": sent}, {"margins": margins, "grown": np.array(self.tree)})


def sized(task: TreeTask, steps: int) -> TreeTask:
    """Return ``task`` with ``steps`` boosting steps (at least 1), and without the trees that fine-tuning adds."""
    return replace(task, settings=replace(task.settings, trees=max(steps, 1), own_trees=0))


class SentWhole(Trees):
    """A strategy whose hospitals send whole trees instead of sums from which the server grows trees."""

    def ready(self, view: FederationView, state: State) -> Generator[Call, Answers, TreesState]:
        """Return the state with the edges between bins and the prediction before the first tree.

        Raises ``Lost`` if a hospital did not answer.
        """
        own = own_state(state, TreesState)
        if own.edges:
            return own
        return (yield from prepared(view, own, view.trainable))

    def next_of(
        self, view: FederationView, state: TreesState, ids: Ids, lacking: int
    ) -> Generator[Call, Answers, list[Forest]]:
        """Let each of the hospitals ``ids`` grow the trees of one boosting step, and return each hospital's trees.

        ``lacking`` is as in :class:`NextTrees`. Raises ``Lost`` if a hospital did not answer.
        """
        task, forest = task_of(view), forest_of(view, state)
        tree = len(forest) // task.outputs
        columns = columns_of(view, tree)
        received: dict[str, NDArray[Any]] = {} if columns is None else {"columns": columns}
        known = None
        if lacking:
            lacked = self.vector(task, forest, lacking)
            if view.checked is not None and view.checked[ids].all():
                known = lacked
            else:
                received["trees"] = lacked
        if tree < len(view.trainable):  # this is each hospital's first call
            received["edges"] = np.concatenate(state.edges)
        program = NextTrees(task, state.edges, forest.base, forest.scale, tree, lacking, rows_key(view), known)
        answers = yield Call(program, received, ids)
        if len(answers.ids) < len(ids):
            raise Lost
        shape = Shape(sized(task, 1))
        return [shape.forest(vector) for vector in answers.each["trees"]]

    def vector(self, task: TreeTask, forest: Forest, steps: int) -> Floats:
        """Return the trees of the last ``steps`` boosting steps, as the vector in which they are sent to hospitals."""
        return Shape(sized(task, steps)).vector(forest.last(steps * task.outputs))

    def extended(self, view: FederationView, state: TreesState, forest: Forest) -> TreesState:
        """Return the state after a round; ``forest`` has all trees, including those of the round."""
        task = task_of(view)
        new = len(forest) // task.outputs - steps_of(view, state)
        return replace(state, models=Shape(task).vector(forest)[None], last={"trees": self.vector(task, forest, new)})
