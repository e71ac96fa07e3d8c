"""Training losses of a run: mean losses over the training rows of all hospitals, without penalties.

No training method uses these losses. Each hospital sends the sum of its rows' losses and its number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.training.base import Model
from raysim.training.class_weights import ClassWeights, row_weights


@dataclass(frozen=True)
class TrainingLosses:
    """The training losses of a run that are not stored with a round, such as the losses before training."""

    before: Mapping[str, float] = field(default_factory=dict)
    """The loss of each evaluated model before training, by name."""
    model: str | None = None
    """The name of the model whose training loss is measured after rounds; None until it is first measured."""
    constant: float = float("nan")
    """The loss of the best constant prediction; NaN if the label is a real number."""

    def curve(self, by_round: Mapping[int, float | None]) -> dict[int, float]:
        """Return the training loss by round; round 0 is before training. Empty if the loss before training was not
        measured.

        ``by_round`` has the losses of later rounds, None where not measured.
        """
        if self.model is None or self.model not in self.before:
            return {}
        taken = {round: loss for round, loss in by_round.items() if loss is not None}
        return {0: self.before[self.model], **taken}


def constant_loss(y: NDArray[Any], classes: int, weights: ClassWeights) -> float:
    """Return the mean loss of the best constant prediction over labels ``y [n]``; NaN if ``y`` is empty or contains
    real numbers.

    With the class weights ``w_c`` and the shares ``p_c`` of the classes among the labels, the loss is ``-sum_c w_c p_c
    log q_c``, where the predicted probability ``q_c`` is proportional to ``w_c p_c``.
    """
    if not classes or not len(y):
        return float("nan")
    each = row_weights(weights, np.arange(classes))
    mass = np.bincount(y, minlength=classes) / len(y) * (1.0 if each is None else each)
    mass = mass[mass > 0]
    return float(-(mass * np.log(mass / mass.sum())).sum())


def weighted_losses(
    model: Model, class_weights: ClassWeights, outputs: NDArray[Any], y: NDArray[Any]
) -> NDArray[np.float64]:
    """Return the loss of each row times the weight of its class, ``[n]``."""
    losses, weights = model.row_losses(outputs, y), row_weights(class_weights, y)
    return losses if weights is None else losses * weights
