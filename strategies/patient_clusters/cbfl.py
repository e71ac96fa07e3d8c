"""CBFL: hospitals' mean patients are clustered, and each patient belongs to the cluster with the nearest centre.

L. Huang, A. L. Shea, H. Qian, A. Masurkar, H. Deng, D. Liu: *Patient clustering improves efficiency of federated
machine learning to predict mortality and hospital stay time using distributed electronic medical records*, Journal of
Biomedical Informatics 99, 2019. It is a baseline of FedGMC (Ye et al.), Table 2.

Each hospital sends the mean of its patients' continuous features. The server clusters these means by k-means. The
number of clusters, 3 to 8 and below the number of hospitals, is the one with the largest mean silhouette. Each patient
belongs to the nearest centre, and federated averaging trains a model for each cluster. The paper first encodes patients
by a federated denoising autoencoder. Here ``encoder`` may name a trained autoencoder (see
:mod:`raysim.strategies.patient_clusters.encoding`).

Traffic, with d continuous features among D value columns, e encoded features (e = d without ``encoder``), G clusters,
and P scalars of a model:

- Each hospital once sends D scalars that tell which of its columns are continuous, the e scalars of its mean patient,
  and its number of rows in each of the G clusters.
- Each hospital once receives the indices of the d continuous columns, and later ``d + G e`` scalars: the indices again,
  and the centres of the clusters. If only G' clusters have training rows, it also receives their G' indices.
- In a round, each participant receives and sends back P scalars for each cluster in which it has rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from raysim.strategies.base import (
    Context,
    FederationView,
    Floats,
    Needs,
    PositiveInt,
    State,
    Statistic,
    Unfit,
    statistics_of,
)
from raysim.strategies.patient_clusters.cluster_models import (
    PatientClustering,
    nearest_centres,
    numbers_to_try,
    patient_state,
)
from raysim.strategies.patient_clusters.continuous import Features, clustered_columns
from raysim.strategies.patient_clusters.encoding import check_encoder, encoded
from raysim.strategies.shared.clustering import kmeans
from raysim.strategies.shared.silhouette import best_labels


@dataclass(frozen=True)
class MeanPatient(Statistic):
    """The mean of a hospital's training rows in the received ``columns [d]``, encoded first if there is an
    ``encoder``."""

    shape: tuple[int]
    encoder: str | None = None
    name = "mean_patient"

    def value(self, at: Context) -> Floats:
        return np.asarray(encoded(at.rows.X, at.received["columns"], self.encoder).mean(axis=0))


@dataclass(frozen=True)
class Cbfl(PatientClustering):
    """Clusters of patients, with centres computed from hospitals' mean patients (CBFL)."""

    title: ClassVar[str] = "CBFL"
    needs: ClassVar[Needs] = Needs.more("sends each hospital's encoding of its patients")

    clusters: PositiveInt | None = None
    """The number of clusters of patients; null means the number from 3 to 8 with the largest silhouette."""
    features: Features = "continuous"
    """The features by which patients are clustered: ``continuous`` ones, or ``values`` (all but flags of missing
    values)."""
    encoder: str | None = None
    """The import path of a function that encodes the features before clustering; null uses the features themselves."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_encoder(self.encoder)

    def setup(self, view: FederationView) -> State:
        columns = clustered_columns(view, self.features)
        try:
            shape = encoded(np.zeros((1, columns.max() + 1)), columns, self.encoder).shape[1:]
        except ValueError as error:
            raise Unfit(str(error)) from None
        means = statistics_of(view, MeanPatient(shape, self.encoder), view.trainable, columns=columns)
        tried = [kmeans(means, k, view.rng("clusters", k)) for k in numbers_to_try(self.clusters, len(means))]
        labels = tried[best_labels(means, tried, view.rng("silhouette"))]
        centres = np.stack([means[labels == k].mean(axis=0) for k in range(labels.max() + 1)])
        return patient_state(view, nearest_centres(columns, centres, self.encoder))
