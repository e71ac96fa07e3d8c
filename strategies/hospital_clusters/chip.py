"""CHiP-FL: clustering, hierarchical aggregation and personalization.

Zhou: *CHiP-FL*, equations 1 to 5 and appendix A. Hospitals are clustered once by k-means on their signatures (number of
rows, and statistics of labels and features). A participant starts from its cluster's model ``theta_k`` and minimises
``L_i + lam |theta - theta_k|^2 + mu |theta - theta_g|^2``, with ``theta_g`` the global model. Deltas (changes of
hospitals' parameters) are averaged in each cluster. The global model is the mean of the cluster models, each weighted
by the training rows of all hospitals in its cluster. Every cluster model then moves by ``1 - alpha`` of the way to the
global model. After the last round each hospital fine-tunes its cluster's model, without a proximal term.

Choices where the paper is silent or contradicts itself:

- K-means uses standardised columns, and there are 5 clusters, as in the paper's hierarchical baseline.
- The cohort is sampled over the federation and then split by cluster.
- Deltas are differences from the cluster model, as in the pseudo-code (not eq. 4).
- Fine-tuning takes one epoch.

Traffic: each hospital sends its signature once: ``C + 3 D`` scalars for C classes and D columns, or ``3 + 3 D`` for a
numeric label. In a round, each participant receives its cluster's model and, unless mu = 0, the global model, P scalars
each. It sends back P scalars and the number of its training rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from raysim.strategies.base import FederationView, Ids, LocalProblem, NonNegativeFloat, State, UnitInterval, Update
from raysim.strategies.hospital_clusters.by_signature import SignatureClustering
from raysim.strategies.shared.clustering import cluster_problem, members
from raysim.strategies.shared.personalization import Personalization, fine_tune


@dataclass(frozen=True, kw_only=True)
class Chip(SignatureClustering):
    """Clustering, hierarchical aggregation and personalization (CHiP-FL).

    With ``recluster_every: 0``, hospitals are clustered only once, as in the paper.
    """

    title: ClassVar[str] = "CHiP-FL"
    serves = ("global", "cluster", "personal")

    lam: NonNegativeFloat = 0.5
    """λ: the weight of the proximal term towards the cluster's model (equation 1)."""
    mu: NonNegativeFloat = 0.05
    """μ: the weight of the proximal term towards the global model (equation 1)."""
    alpha: UnitInterval = 0.9
    """α: after each round, a cluster's model becomes α times itself plus 1 - α times the global model (equation 5)."""
    personalization: Personalization = field(default_factory=Personalization)
    """How each hospital fine-tunes its cluster's model after the last round."""

    def unused_when_pooled(self) -> frozenset[str]:
        return super().unused_when_pooled() | {"lam"}

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return cluster_problem(view, state, ids, self.lam, self.mu)

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        return self.aggregated(view, state, update, self.alpha)

    def personalize(self, view: FederationView, state: State) -> LocalProblem:
        return fine_tune(members(state), self.personalization)
