"""FedGMC: patients are clustered by a Gaussian mixture of hospitals' mixtures, and each cluster has a model.

Ye et al.: *FedGMC*, Algorithms 1 and 2.

1. Each hospital fits Gaussian mixtures with 2 to 4 components to its continuous features and sends the one with the
   largest mean silhouette.
2. The server draws virtual patients from them and fits a mixture to these, with 3 to 8 components, again by silhouette.
3. A patient belongs to the component of largest posterior, and federated averaging trains a model for each on its
   patients' rows; prediction is by the model of the patient's cluster.

Choices where the paper is silent or contradicts itself: a hospital tries 2 to 4 components; 10 virtual patients for
each component (``per_component``; its Algorithm 1 uploads no weights), or for each hospital by its weights
(``per_hospital``), or as many in all, in proportion to rows (``proportional``); one shot (Algorithm 1), where its Table
2 iterates. A hospital with fewer than 4 rows, or whose rows are all alike, has one component. Silhouettes are over at
most 2,000 rows (:mod:`raysim.strategies.shared.silhouette`). A mixture of few rows all but reveals them: the mean of a
single row is that row.

In the paper, cluster models learn nothing from each other. ``lam``, ``mu`` and ``alpha`` let them, as CHiP-FL does:
proximal terms of 2 ``lam`` to the cluster's model and 2 ``mu`` to the mean of all by rows, and every round a step of
``1 - alpha`` towards that mean. The defaults, 0, 0 and 1, are the paper.

Traffic per hospital, with d continuous features out of D columns of values. Once, up: D scalars (which columns are
continuous), ``k (1 + d + d (d + 1) / 2)`` (its mixture) and G (its rows in each cluster). Once, down: d (the columns),
``d + G (1 + d + d (d + 1) / 2)`` (columns and mixture), and G' (the clusters left) where only so many have training
rows. In a round P down and P up for each participant and each cluster in which it has rows; where ``mu`` > 0 each
participant receives P more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from raysim.strategies.base import (
    FederationView,
    Floats,
    Ids,
    LocalProblem,
    Needs,
    State,
    Update,
    at_least,
    one_of,
    within,
)
from raysim.strategies.patient_clusters.cluster_models import (
    PatientClustering,
    check_number,
    most_likely_components,
    numbers_to_try,
    patient_problem,
    patient_state,
    patient_step,
)
from raysim.strategies.patient_clusters.continuous import Features, ask_columns, check_features
from raysim.strategies.patient_clusters.gaussian_mixtures import LocalMixture, Mixture, best_mixture, shared_out

Virtual = Literal["per_component", "per_hospital", "proportional"]


@dataclass(frozen=True)
class FedGmc(PatientClustering):
    """``clusters``: how many, searched where None; ``features``: what patients are clustered by.

    ``virtual``: of what there are ``samples`` virtual patients each. ``lam``, ``mu``, ``alpha``: what clusters share.
    """

    title: ClassVar[str] = "FedGMC"
    needs: ClassVar[Needs] = Needs.more("sends each hospital's mixture of its patients")

    clusters: int | None = None
    """The number of clusters of patients; null searches 3 to 8 by silhouette."""
    features: Features = "continuous"
    """What patients are clustered by: ``continuous`` features, or all columns of ``values``."""
    virtual: Virtual = "per_component"
    """What ``samples`` virtual patients are drawn of: ``per_component``, ``per_hospital`` or ``proportional``."""
    samples: int = 10
    """Virtual patients that the server draws, of each of these."""
    lam: float = 0.0
    """λ: how strongly training is pulled to the cluster's model."""
    mu: float = 0.0
    """μ: how strongly training is pulled to the mean of all clusters' models."""
    alpha: float = 1.0
    """α: how much of itself a cluster's model keeps in a round; the rest comes from the mean of all."""

    def __post_init__(self) -> None:
        check_number(self.clusters)
        check_features(self.features)
        one_of("virtual", self.virtual, ("per_component", "per_hospital", "proportional"))
        at_least("samples", self.samples, 1)
        at_least("lam", self.lam, 0)
        at_least("mu", self.mu, 0)
        within("alpha", self.alpha, 0, 1)

    def setup(self, view: FederationView) -> State:
        columns = ask_columns(view, self.features)
        answers = view.ask(LocalMixture(columns), ids=view.trainable)
        points = self._patients(view, [Mixture.unpacked(answer, len(columns)) for answer in answers])
        mixture = best_mixture(points, numbers_to_try(self.clusters, len(points)), view.rng("clusters"))
        return patient_state(view, most_likely_components(columns, mixture))

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return patient_problem(state, ids, self.lam, self.mu)

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        return patient_step(state, update, self.alpha)

    def _patients(self, view: FederationView, mixtures: list[Mixture]) -> Floats:
        """Virtual patients ``[n, d]`` from the mixtures of the hospitals with training rows, in their order."""
        if self.virtual == "proportional":
            rows = [n * m.weights for n, m in zip(view.sizes[view.trainable], mixtures, strict=True)]
            drawn = shared_out(self.samples * sum(len(m.weights) for m in mixtures), np.concatenate(rows))
            counts = np.split(drawn, np.cumsum([len(m.weights) for m in mixtures])[:-1])
        elif self.virtual == "per_hospital":
            counts = [shared_out(self.samples, m.weights) for m in mixtures]
        else:
            counts = [np.full(len(m.weights), self.samples) for m in mixtures]
        return np.concatenate(
            [
                mixture.sample(c, int(count[c]), view.rng("virtual", hospital, c))
                for hospital, mixture, count in zip(view.trainable.tolist(), mixtures, counts, strict=True)
                for c in range(len(count))
            ]
        )
