"""Boosted trees for each cluster of hospitals, grown from histograms that are summed within the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import Calls, FederationView, Ids, Newcomers, State, Strategy, own_state
from raysim.strategies.shared.clustering import members
from raysim.strategies.trees.base import TreesState
from raysim.strategies.trees.federated import FederatedTrees, Lost, prepared


@dataclass(frozen=True, eq=False)
class ClusterTreesState(TreesState):
    """The state of boosted trees for clusters of hospitals.

    Clusters are numbered 1, 2, ... Row k of ``models`` has the trees of cluster k; row 0 has no trees.
    """

    lasts: tuple[dict[str, Any], ...] = ()
    """:attr:`TreesState.last` of each cluster; index k - 1 is for cluster k. Empty before the first round."""


@dataclass(frozen=True)
class ClusterTrees(FederatedTrees):
    """Boosted trees for each cluster of the strategy ``clustering``.

    Bins and the prediction before the first tree are computed from all hospitals' rows.
    """

    title: ClassVar[str] = "Boosted trees by cluster"
    serves = ("cluster",)

    clustering: Strategy

    def check(self, names: Sequence[str], sizes: Ids) -> None:
        self.clustering.check(names, sizes)

    def setup(self, view: FederationView) -> State:
        made = self.clustering.setup(view)
        return ClusterTreesState(models=made.models.copy(), cluster=members(made))

    def round(self, view: FederationView, state: State) -> Calls:
        own, ids = own_state(state, ClusterTreesState), view.trainable
        try:
            if not own.edges:
                start = yield from prepared(view, TreesState(models=own.models[:1]), ids)
                models = np.concatenate([own.models[:1], np.repeat(start.models, len(own.models) - 1, axis=0)])
                own = replace(own, models=models, edges=start.edges)
            grown = []
            for row in range(1, len(own.models)):
                last = own.lasts[row - 1] if own.lasts else None
                one = TreesState(models=own.models[row : row + 1], edges=own.edges, last=last)
                grown.append((yield from self.grown(view, one, ids[members(own)[ids] == row])))
        except Lost:
            return state
        models = np.concatenate([own.models[:1], *[each.models for each in grown]])
        return replace(own, models=models, lasts=tuple(each.last or {} for each in grown))

    def last(self, state: TreesState, row: int) -> dict[str, NDArray[Any]] | None:
        lasts = own_state(state, ClusterTreesState).lasts
        return lasts[row - 1] if lasts else None

    def done(self, view: FederationView, state: State) -> bool:
        own = own_state(state, ClusterTreesState)
        return super().done(view, TreesState(models=own.models[1:2]))

    def facts(self, view: FederationView, state: State) -> dict[str, float]:
        return super().facts(view, TreesState(models=state.models[1:2])) | {"clusters": float(len(state.models) - 1)}

    def newcomers(self, view: FederationView, state: State) -> Newcomers | None:
        return self.clustering.newcomers(view, state)
