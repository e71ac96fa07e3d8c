"""Hierarchical federated averaging: hospitals are averaged into clusters, and clusters into one global model.

CHiP-FL (Zhou), Table 2, has this baseline, "Hierarchical", but does not define it. Here it is CHiP-FL without proximal
terms (lam = mu = 0) and with every cluster restarting from the global model (alpha = 0). A cohort's average is
therefore stratified by cluster. Hospital i in cluster k has the weight ``(N_k/N) * (n_i / n_{S_k})``: the cluster's
share of all training rows, times the hospital's share of the rows of the cluster's participants.

Traffic: each hospital sends its signature (number of rows, and statistics of labels and features) once. In a round,
each participant receives the model's P scalars, and sends back P scalars and the number of its training rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from raysim.strategies.base import FederationView, Ids, State, Update, choose
from raysim.strategies.hospital_clusters.by_signature import SignatureClustering


@dataclass(frozen=True, kw_only=True)
class Hierarchical(SignatureClustering):
    """Hierarchical federated averaging: one global model, averaged within and then across clusters of hospitals."""

    title: ClassVar[str] = "Hierarchical clusters"

    def select(self, view: FederationView, state: State, round: int) -> Ids:
        return choose(view, state, view.trainable, "sample", round)

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        return self.aggregated(view, state, update, alpha=0.0)
