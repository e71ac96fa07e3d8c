"""Cyclic training of trees: hospitals take turns, and each adds a tree that it grows on its own rows.

The method follows NVFlare (tree-based XGBoost) and Flower (``xgboost-comprehensive``). The order of the hospitals is
sampled once. In each round, the next hospital receives the trees that were added since its last turn, and adds K trees.
K is 1, or the number of classes if there are more than two. The server receives whole trees of single hospitals; leaves
of these trees may contain few patients.

Traffic of a round: the hospital whose turn it is receives at most K trees of every hospital, and sends K trees. Each
number of a tree, such as the threshold of a split or the value of a leaf, takes 8 bytes. With early stopping, hospitals
with validation rows receive the K new trees after each round instead of at their turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from raysim.strategies.base import Calls, FederationView, Needs, State
from raysim.strategies.trees.base import forest_of, steps_of
from raysim.strategies.trees.federated import Lost
from raysim.strategies.trees.sent_whole import SENDS_TREES, SentWhole


@dataclass(frozen=True)
class TreesCyclic(SentWhole):
    """Cyclic training of trees. The settings of trees are in ``model:``."""

    title: ClassVar[str] = "Trees in turn"
    needs: ClassVar[Needs] = SENDS_TREES

    def round(self, view: FederationView, state: State) -> Calls:
        order = view.rng("turns of trees").permutation(view.trainable)
        try:
            own = yield from self.ready(view, state)
            steps = steps_of(view, own)
            turn = steps % len(order)
            # Since its last turn, every hospital, itself included, has added K trees.
            trees = yield from self.next_of(view, own, order[turn : turn + 1], min(len(order), steps))
        except Lost:
            return state
        forest = forest_of(view, own)
        for one in trees:
            forest = forest.joined(one)
        return self.extended(view, own, forest)
