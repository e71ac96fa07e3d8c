"""FedBN: batch normalisation stays at the hospital, and all other parameters are averaged.

X. Li, M. Jiang, X. Zhang, M. Kamp, Q. Dou: *FedBN: Federated Learning on Non-IID Features via Local Batch
Normalization*, ICLR 2021, Algorithm 1.

Each hospital has its own scale, shift and running statistics in every batch-normalisation layer. A model without batch
normalisation is refused.

Traffic of a round: the server sends each participant the P_b parameters outside batch normalisation. Each participant
sends back P_b numbers and its number of training rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from raysim.strategies.base import FederationView, Ids, Mask, State, Training
from raysim.strategies.shared.weights import Weighted

RUNNING = "running_mean"
"""The last part of a tensor's name, by which the tensor's layer is recognised as batch normalisation."""


@dataclass(frozen=True)
class FedBN(Weighted):
    """Federated averaging with local batch normalisation (FedBN); hospitals are weighted as in FedAvg."""

    def check_training(self, training: Training) -> None:
        if not _layers(training.parameters):
            raise ValueError(
                "model.name: fedbn keeps batch normalisation at the hospital, and this model has none; choose a model "
                "with batch normalisation, or another strategy"
            )

    def private(self, view: FederationView) -> Mask | None:
        mask, layers = np.zeros(len(view.initial), np.bool_), _layers(view.parameters)
        for name, part in view.parameters.items():
            mask[part] = name.rpartition(".")[0] in layers
        return mask

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        return {"personal": np.zeros(len(view.sizes), dtype=np.int64)}


def _layers(names: Iterable[str]) -> set[str]:
    """Return the names of the batch-normalisation layers, given the ``names`` of a model's tensors."""
    split = (name.rpartition(".") for name in names)
    return {layer for layer, _, last in split if last == RUNNING}
