"""FedGMC: patients are clustered by a Gaussian mixture fitted to hospitals' mixtures, and each cluster has a model.

Ye et al.: *FedGMC*, Algorithms 1 and 2.

1. Each hospital fits Gaussian mixtures with 2 to 4 components to its continuous features and sends the mixture with the
   largest mean silhouette.
2. The server samples virtual patients from these mixtures and fits mixtures with 3 to 8 components to the samples. The
   mixture with the largest mean silhouette defines the clusters.
3. A patient belongs to the component with the largest posterior. Federated averaging trains a model for each component
   on the rows of the component's patients. This model also predicts for these patients.

Choices where the paper is silent or contradicts itself:

- A hospital tries 2 to 4 components.
- ``virtual: per_component`` samples 10 virtual patients from each component, because the paper's Algorithm 1 uploads no
  weights of components. ``per_hospital`` samples 10 for each hospital, in proportion to its mixture's weights.
  ``proportional`` samples as many in total as ``per_component``, in proportion to the hospitals' rows and their
  mixtures' weights.
- Clustering is done once (Algorithm 1), although Table 2 of the paper iterates.
- A hospital with fewer than 4 rows, or whose rows are all alike, has one component.
- Silhouettes use at most 2,000 rows (:mod:`raysim.strategies.shared.silhouette`).

A mixture that was fitted to few rows nearly reveals these rows.

In the paper, cluster models learn nothing from each other. ``lam``, ``mu`` and ``alpha`` couple them as in CHiP-FL. The
loss has the terms ``lam |theta - theta_g|^2 + mu |theta - theta_0|^2``, with ``theta_g`` the cluster's model and
``theta_0`` the row-weighted mean of all models. In every round cluster models also move by ``1 - alpha`` of the way to
``theta_0``. The defaults, 0, 0 and 1, are the paper's method.

Traffic, with d continuous features among D value columns, G clusters, and P scalars of a model:

- Each hospital once sends D scalars that tell which of its columns are continuous, the ``4 (1 + d + d (d + 1) / 2)``
  scalars of its mixture (filled up to 4 components), and its number of rows in each of the G clusters.
- Each hospital once receives the indices of the d continuous columns, and later ``d + G (1 + d + d (d + 1) / 2)``
  scalars: the indices again, and the common mixture. If only G' clusters have training rows, it also receives their G'
  indices.
- In a round, each participant receives and sends back P scalars for each cluster in which it has rows. With ``mu`` > 0
  each participant also receives the mean of all models, P scalars.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from raysim.core.arrays import shared_out
from raysim.strategies.base import (
    FederationView,
    Floats,
    Ids,
    LocalProblem,
    Needs,
    NonNegativeFloat,
    PositiveInt,
    State,
    UnitInterval,
    Update,
    statistics_of,
)
from raysim.strategies.patient_clusters.cluster_models import (
    PatientClustering,
    most_likely_components,
    numbers_to_try,
    patient_problem,
    patient_state,
    patient_step,
)
from raysim.strategies.patient_clusters.continuous import Features, clustered_columns, defined
from raysim.strategies.patient_clusters.gaussian_mixtures import LocalMixture, Mixture, best_mixture

Virtual = Literal["per_component", "per_hospital", "proportional"]


@dataclass(frozen=True)
class FedGmc(PatientClustering):
    """Clusters of patients by a Gaussian mixture fitted to hospitals' mixtures (FedGMC)."""

    title: ClassVar[str] = "FedGMC"
    needs: ClassVar[Needs] = Needs.more("sends each hospital's mixture of its patients")

    clusters: PositiveInt | None = None
    """The number of clusters of patients; null means the number from 3 to 8 with the largest silhouette."""
    features: Features = "continuous"
    """The features by which patients are clustered: ``continuous`` ones, or ``values`` (all but flags of missing
    values)."""
    virtual: Virtual = "per_component"
    """How many virtual patients are sampled: ``samples`` from each component of a hospital's mixture
    (``per_component``), or ``samples`` from each hospital (``per_hospital``). ``proportional`` samples as many in total
    as ``per_component``, from each hospital in proportion to its rows."""
    samples: PositiveInt = 10
    """The number of virtual patients for each component or hospital (see ``virtual``)."""
    lam: NonNegativeFloat = 0.0
    """λ: the factor of the squared distance to the cluster's model in the loss."""
    mu: NonNegativeFloat = 0.0
    """μ: the factor of the squared distance to the mean of all clusters' models in the loss."""
    alpha: UnitInterval = 1.0
    """α: after each round, a cluster's model becomes α times itself plus 1 - α times the mean of all models."""

    def setup(self, view: FederationView) -> State:
        columns = clustered_columns(view, self.features)
        sent = statistics_of(view, LocalMixture(len(columns)), view.trainable, columns=columns)
        points = self._patients(view, [Mixture.unpacked(defined(table), len(columns)) for table in sent])
        mixture = best_mixture(points, numbers_to_try(self.clusters, len(points)), view.rng("clusters"))
        return patient_state(view, most_likely_components(columns, mixture))

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return patient_problem(state, ids, self.lam, self.mu)

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        return patient_step(state, update, self.alpha)

    def _patients(self, view: FederationView, mixtures: list[Mixture]) -> Floats:
        if self.virtual == "proportional":
            rows = [n * m.weights for n, m in zip(view.sizes[view.trainable], mixtures, strict=True)]
            counts_of_all = shared_out(self.samples * sum(len(m.weights) for m in mixtures), np.concatenate(rows))
            counts = np.split(counts_of_all, np.cumsum([len(m.weights) for m in mixtures])[:-1])
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
