"""Steps after the last round of any strategy: fine-tuning of a model, and recalibration of its predicted risks.

In fine-tuning, every hospital continues to train the strategy's model on its own rows. The result is the hospital's own
model; nothing is sent. In recalibration, every hospital fits ``logit p' = a + b logit p``, where ``p`` are the
predictions of the headline model (the strategy's most personal model) for the hospital's validation rows, and ``p'``
the recalibrated ones.

Traffic: with ``method: eb``, each hospital sends a histogram of the scores of its validation rows for each class, and
receives two numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from raysim.strategies.base import (
    Ids,
    LocalProblem,
    LocalTraining,
    NonNegativeFloat,
    NonNegativeInt,
    Objective,
    Proximal,
    Settings,
)

RECALIBRATED = "recalibrated"
"""The name, in results, of the headline model after recalibration."""


@dataclass(frozen=True)
class Personalization(Settings):
    """Fine-tuning for ``epochs`` epochs at ``learning_rate`` (CHiP-FL, section 4.4: one epoch at .03)."""

    epochs: NonNegativeInt = 1
    """Epochs over a hospital's training rows after the last round."""
    learning_rate: NonNegativeFloat = 0.03
    """The learning rate of these epochs."""


@dataclass(frozen=True)
class Recalibration:
    """How each hospital recalibrates the headline model, by an intercept ``a`` and a slope ``b``; see
    :mod:`raysim.statistics.clinical.recalibration`."""

    method: Literal["eb", "intercept", "logistic", "closed"] = "eb"
    """The method. ``eb`` shrinks each hospital's ``a`` towards the mean over hospitals, with ``b = 1``. ``intercept``
    fits ``a`` with ``b = 1``, and ``logistic`` both ``a`` and ``b``, at each hospital alone. ``closed`` changes
    nothing, ``a``, or both: the smallest of these changes that a test on the hospital's rows does not reject."""
    rows: Literal["validation"] = "validation"
    """The rows for the fit. Training rows cannot be used, because the model already fits them."""


@dataclass(frozen=True)
class LastSteps:
    """Steps after the last round, in addition to the strategy's own steps."""

    fine_tuning: Personalization | None = None
    """How hospitals fine-tune the headline model if the strategy has no fine-tuning of its own; None means no
    fine-tuning."""
    recalibration: Recalibration | None = None
    """How hospitals recalibrate the headline model; None means no recalibration."""


def fine_tune(start: Ids, how: Personalization, proximal: tuple[Proximal, ...] = ()) -> LocalProblem:
    """Return the local training in which every hospital fine-tunes a model and stores the result. ``start [N]`` has the
    index of each hospital's model."""
    training = LocalTraining(epochs=how.epochs, learning_rate=how.learning_rate, keep=True)
    return LocalProblem(start=start, objective=Objective(proximal), training=training)
