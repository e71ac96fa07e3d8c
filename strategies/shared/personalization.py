"""Local fine-tuning after the last round: a model of its own for every hospital, with no traffic."""

from __future__ import annotations

from dataclasses import dataclass

from raysim.strategies.base import Ids, LocalProblem, Objective, Pull, Visit, at_least


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


def fine_tune(start: Ids, how: Personalization, pulls: tuple[Pull, ...] = ()) -> LocalProblem:
    """Every hospital continues from bank row ``start [N]`` and keeps the result; nothing is sent."""
    visit = Visit(epochs=how.epochs, learning_rate=how.learning_rate, keep=True)
    return LocalProblem(start=start, objective=Objective(pulls), visit=visit)
