"""Hierarchical federated averaging: hospitals are averaged into clusters, and clusters into one global model.

CHiP-FL (Zhou), Table 2, has this baseline, "Hierarchical", but does not define it. Here it is CHiP-FL without proximal
terms (lam = mu = 0) and with every cluster restarting from the global model (alpha = 0). A cohort's average is
therefore stratified by cluster, with the weights ``(N_k/N) * (n_i / n_{S_k})``. Clusters without participants add
nothing. A selection that uses losses receives losses under the global model, from which all hospitals start.

Traffic: the signature once; per participant P scalars down, P + 1 up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from raysim.strategies.base import FederationView, Ids, State, Update, choose
from raysim.strategies.hospital_clusters.by_signature import SignatureClustering


@dataclass(frozen=True, kw_only=True)
class Hierarchical(SignatureClustering):
    """Hierarchical federated averaging: one global model, averaged first within clusters of hospitals by signature."""

    title: ClassVar[str] = "Hierarchical clusters"

    def select(self, view: FederationView, state: State, round: int) -> Ids:
        return choose(view, state, view.trainable, "sample", round)

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        return self.aggregated(view, state, update, alpha=0.0)
