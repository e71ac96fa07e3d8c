"""A model in two parts: the body that hospitals share, and the head that each hospital trains and stores alone.

A layer consists of the tensors whose names differ only after the last dot: ``layers.2.weight`` and ``layers.2.bias``
form the layer ``layers.2``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import (
    FederationView,
    Ids,
    Limit,
    LocalProblem,
    LocalTraining,
    Objective,
    State,
    Strategy,
    Training,
    above,
)

Mask = NDArray[np.bool_]
HeadOptimizer = Literal["sgd", "momentum", "adam"]
HeadRate = Annotated[float, Limit(above, 0)]


class SharedBody(Strategy):
    """A strategy in which each hospital has its own ``head`` (see :func:`head_mask`), and hospitals share the other
    parameters (the body).

    After the last round, every hospital trains its head for ``final_head_epochs`` epochs with the body frozen.
    ``head_optimizer`` and ``head_learning_rate`` apply when the head is trained alone; None means the settings in
    ``training``.
    """

    head: tuple[str, ...] | None
    final_head_epochs: int
    head_optimizer: HeadOptimizer | None
    head_learning_rate: float | None

    def of_head(self, epochs: int | None, *, keep: bool = False) -> LocalTraining:
        """Return the settings with which a hospital trains the head for ``epochs`` epochs while the body is frozen."""
        return LocalTraining(
            epochs=epochs, learning_rate=self.head_learning_rate, optimizer=self.head_optimizer, keep=keep
        )

    def check_training(self, training: Training) -> None:
        for name in self.head or ():
            if not _tensors(training.parameters, name):
                names = [
                    name
                    for layer, tensors in layers(training.parameters).items()
                    for name in ([layer] if layer else tensors)
                ]
                raise ValueError(f"strategy.head: the model has no layer or tensor '{name}'; it has {', '.join(names)}")

    def private(self, view: FederationView) -> Mask | None:
        mask = head_mask(view, self.head)
        return mask if mask.any() else None

    def personalize(self, view: FederationView, state: State) -> LocalProblem | None:
        if not self.final_head_epochs:
            return None
        start, body = np.zeros(len(view.sizes), dtype=np.int64), ~head_mask(view, self.head)
        training = self.of_head(self.final_head_epochs, keep=True)
        return LocalProblem(start=start, objective=Objective(frozen=body), training=training)

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        return {"personal": np.zeros(len(view.sizes), dtype=np.int64)}


def layers(parameters: Mapping[str, slice]) -> dict[str, list[str]]:
    """Return the names of the tensors of each layer, in the model's order."""
    tensors: dict[str, list[str]] = {}
    for name in parameters:
        tensors.setdefault(name.rpartition(".")[0], []).append(name)
    return tensors


def head_mask(view: FederationView, head: Sequence[str] | None) -> Mask:
    """Return a mask ``[P]`` of the model's P parameters that belong to the head.

    ``head`` has the names of tensors or layers; None means the last layer with trained parameters, or the last tensor
    of a model with only one layer.
    """
    parameters = view.parameters
    if head is None:
        # Running statistics follow all parameters, so a layer with only statistics would be last at any position.
        last = [tensors for tensors in layers(parameters).values() if not view.measured.issuperset(tensors)]
        head = last[-1] if len(last) > 1 else last[-1][-1:]
    mask = np.zeros(len(view.initial), dtype=np.bool_)
    for name in head:
        for tensor in _tensors(parameters, name):
            mask[parameters[tensor]] = True
    return mask


def _tensors(parameters: Mapping[str, slice], name: str) -> list[str]:
    return [tensor for tensor in parameters if tensor == name or tensor.startswith(f"{name}.")]
