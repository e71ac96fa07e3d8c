"""FedBN: batch normalisation stays at the hospital, all else is averaged.

X. Li, M. Jiang, X. Zhang, M. Kamp, Q. Dou: *FedBN: Federated Learning on Non-IID Features via Local Batch
Normalization*, ICLR 2021, Algorithm 1.

Scale, shift and running statistics of every batch norm are each hospital's own; a hospital that never took part has
those of the common start. It is refused for a model without batch norm.

Traffic per participant: the P_b scalars outside batch norm down, P_b + 1 up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from raysim.strategies.base import FederationView, Ids, Mask, State, Training
from raysim.strategies.shared.weights import Weighted

RUNNING = "running_mean"
"""The last part of the name of a tensor that every batch norm with statistics has."""


@dataclass(frozen=True)
class FedBN(Weighted):
    """Weights as FedAvg."""

    def check_training(self, training: Training) -> None:
        if not _layers(training.parameters):
            raise ValueError(
                "model.name: fedbn keeps batch normalisation at the hospital, and this model has none; choose a model "
                "that has, or another strategy"
            )

    def private(self, view: FederationView) -> Mask | None:
        mask, layers = np.zeros(len(view.initial), np.bool_), _layers(view.parameters)
        for name, part in view.parameters.items():
            mask[part] = name.rpartition(".")[0] in layers
        return mask

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        return {"personal": np.zeros(len(view.sizes), dtype=np.int64)}


def _layers(names: Iterable[str]) -> set[str]:
    """The layers of batch norm among the tensors' ``names``."""
    split = (name.rpartition(".") for name in names)
    return {layer for layer, _, last in split if last == RUNNING}
