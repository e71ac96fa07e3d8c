"""Bagging of trees: in each round every hospital grows trees, and all these trees are added to the model.

The method follows Flower (``xgboost-comprehensive``) and NVFlare (tree-based XGBoost). From the predictions of all
trees so far, each hospital grows K trees on its own rows. K is 1, or the number of classes if there are more than two.
The server appends the trees of all hospitals to the model, with values multiplied by a factor (``scale``). The factor
is 1 over the number of hospitals (Flower's ``scaled_lr``), the hospital's share of all training rows (NVFlare's option
for uneven sizes), or 1.

With H hospitals there are ``model.trees / H`` rounds, rounded down. The server receives whole trees of single
hospitals; leaves of these trees may contain few patients.

Traffic of a round: each hospital receives the trees that all hospitals grew in the previous round, and sends K trees.
Each number of a tree, such as the threshold of a split or the value of a leaf, takes 8 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from raysim.strategies.base import Calls, FederationView, Needs, State, Unfit
from raysim.strategies.trees.base import forest_of, steps_of, task_of
from raysim.strategies.trees.federated import Lost
from raysim.strategies.trees.sent_whole import SENDS_TREES, SentWhole

SCALES = ("hospitals", "rows", "none")


@dataclass(frozen=True)
class TreesBagging(SentWhole):
    """Bagging of hospitals' own trees."""

    title: ClassVar[str] = "Bagging of trees"
    needs: ClassVar[Needs] = SENDS_TREES

    scale: Literal["hospitals", "rows", "none"] = "hospitals"
    """The factor of each tree's values: 1 over the number of ``hospitals``, the hospital's share of ``rows``, or 1."""

    def setup(self, view: FederationView) -> State:
        if task_of(view).together < len(view.trainable):
            raise Unfit(
                f"name: trees_bagging adds a tree of each of {len(view.trainable)} hospitals per round, but "
                f"model.trees is {task_of(view).together}; raise model.trees"
            )
        return super().setup(view)

    def round(self, view: FederationView, state: State) -> Calls:
        ids = view.trainable
        try:
            own = yield from self.ready(view, state)
            trees = yield from self.next_of(view, own, ids, min(len(ids), steps_of(view, own)))
        except Lost:
            return state
        forest, sizes = forest_of(view, own), view.sizes[ids]
        for one, rows in zip(trees, sizes.tolist(), strict=True):
            factor = {"hospitals": 1 / len(ids), "rows": rows / int(sizes.sum()), "none": 1.0}[self.scale]
            forest = forest.joined(one, factor)
        return self.extended(view, own, forest)

    def done(self, view: FederationView, state: State) -> bool:
        return steps_of(view, state) + len(view.trainable) > task_of(view).together
