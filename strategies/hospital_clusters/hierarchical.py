"""Hierarchical federated averaging: hospitals into clusters, clusters into one global model.

The baseline "Hierarchical" of CHiP-FL (Zhou), Table 2, which the paper leaves undefined; taken as CHiP-FL without
proximal terms (lam = mu = 0) and with every cluster restarting from the global model (alpha = 0). A cohort's average is
therefore stratified by cluster: ``(N_k/N) * (n_i / n_{S_k})``, and clusters without participants add nothing. A
selection that asks for losses gets those under the global model, from which all start.

Traffic: the signature once; per participant P scalars down, P + 1 up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from raysim.strategies.base import FederationView, Ids, State, Update, choose
from raysim.strategies.hospital_clusters.by_signature import SignatureClustering


@dataclass(frozen=True, kw_only=True)
class Hierarchical(SignatureClustering):
    """``clusters``: K (``auto``: 5, or as many as there are hospitals).

    ``signature`` and ``block_scale`` say what hospitals are clustered by.

    ``recluster_every``: r, after how many rounds they are clustered again
    (:mod:`raysim.strategies.shared.reclustering`); 0 is never.
    """

    title: ClassVar[str] = "Hierarchical clusters"

    def select(self, view: FederationView, state: State, round: int) -> Ids:
        return choose(view, state, view.trainable, "sample", round)

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        return self.aggregated(view, state, update, alpha=0.0)
