"""Federated averaging inside each cluster, without a global model.

The baseline "Clustered (No global)" of CHiP-FL (Zhou), Table 2, which the paper leaves undefined; taken as CHiP-FL with
lam = mu = 0 and alpha = 1: independent federated averaging in each cluster. Each hospital uses its cluster's model.

Traffic: the signature once; per participant P scalars down, P + 1 up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from raysim.strategies.base import FederationView, Ids, State, Update
from raysim.strategies.hospital_clusters.by_signature import SignatureClustering
from raysim.strategies.shared.clustering import members


@dataclass(frozen=True, kw_only=True)
class Clustered(SignatureClustering):
    """``clusters``: K (``auto``: 5, or as many as there are hospitals).

    ``signature`` and ``block_scale`` say what hospitals are clustered by.

    ``recluster_every``: r, after how many rounds they are clustered again
    (:mod:`raysim.strategies.shared.reclustering`); 0 is never.
    """

    title: ClassVar[str] = "Clustered FL"

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        return self.aggregated(view, state, update, alpha=1.0)

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        return {"cluster": members(state)}
