"""Federated averaging inside each cluster, without a global model.

CHiP-FL (Zhou), Table 2, has this baseline, "Clustered (No global)", but does not define it. Here it is CHiP-FL with lam
= mu = 0 and alpha = 1.

Traffic: each hospital sends its signature (number of rows, and statistics of labels and features) once. In a round,
each participant receives its cluster's model of P scalars, and sends back P scalars and the number of its training
rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from raysim.strategies.base import FederationView, State, Update
from raysim.strategies.hospital_clusters.by_signature import SignatureClustering


@dataclass(frozen=True, kw_only=True)
class Clustered(SignatureClustering):
    """Independent federated averaging in each cluster of hospitals with similar signatures."""

    title: ClassVar[str] = "Clustered FL"
    serves = ("cluster",)

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        return self.aggregated(view, state, update, alpha=1.0)
