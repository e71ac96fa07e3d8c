"""What hospitals do after the last round, whatever the strategy: fine-tune a model, and recalibrate its risks.

Fine-tuning gives every hospital a model of its own, with no traffic. Recalibration lets every hospital shift the
logits of the headline model, ``logit p' = a + b logit p``, by its validation rows; the ranking of its patients stays.

Traffic of recalibration: nothing, but for ``eb``, for which each hospital sends the histogram of its validation rows'
scores by class and receives two numbers. Its price is labels: each hospital needs labelled rows that trained nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from raysim.strategies.base import Ids, LocalProblem, LocalTraining, Objective, Proximal, at_least

RECALIBRATED = "recalibrated"
"""The name of the model served that recalibration makes of the headline model."""


@dataclass(frozen=True)
class Personalization:
    """``epochs`` over the hospital's training rows at ``learning_rate`` (CHiP-FL, section 4.4: one epoch at .03)."""

    epochs: int = 1
    """Epochs over a hospital's training rows after the last round."""
    learning_rate: float = 0.03
    """The learning rate of these epochs."""

    def __post_init__(self) -> None:
        at_least("epochs", self.epochs, 0)
        at_least("learning_rate", self.learning_rate, 0)


@dataclass(frozen=True)
class Recalibration:
    """How each hospital recalibrates the headline model; see :mod:`raysim.statistics.clinical.recalibration`."""

    method: Literal["eb", "intercept", "logistic", "closed"] = "eb"
    """``eb`` shrinks each hospital's shift to that of all; ``intercept`` and ``logistic`` fit it by itself; ``closed``
    changes the least that its rows ask for."""
    rows: Literal["validation"] = "validation"
    """The rows that it is fitted on. Training rows cannot be: the model fits them already."""


@dataclass(frozen=True)
class LastSteps:
    """What follows the last round beside what a strategy does itself."""

    fine_tuning: Personalization | None = None
    """How hospitals fine-tune the headline model of a strategy that does not fine-tune by itself; None: not at all."""
    recalibration: Recalibration | None = None
    """How hospitals recalibrate the headline model; None: not at all."""


def fine_tune(start: Ids, how: Personalization, proximal: tuple[Proximal, ...] = ()) -> LocalProblem:
    """Every hospital continues from model row ``start [N]`` and keeps the result; nothing is sent."""
    training = LocalTraining(epochs=how.epochs, learning_rate=how.learning_rate, keep=True)
    return LocalProblem(start=start, objective=Objective(proximal), training=training)
