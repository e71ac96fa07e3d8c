"""When a run ends before its last round: the losses of checks on validation rows, and what they say.

A check is the loss of the headline model over the validation rows of all hospitals, every row counting once. The best
check is the one with the least loss, of equals the earliest; its models are those that serve in the end. A run stops
after ``patience`` checks in a row without a fall: none was lower than the last fall by more than ``tolerance`` times
the loss before training. Small falls add up, so that a slow descent is a descent. A loss that is not finite is no fall.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Checks:
    """``before``: the loss before training. ``rounds`` and ``losses``: those of the checks, in order."""

    before: float
    rounds: tuple[int, ...] = ()
    losses: tuple[float, ...] = ()

    def after(self, round: int, loss: float) -> Checks:
        """With one more check."""
        return Checks(self.before, (*self.rounds, round), (*self.losses, loss))

    @property
    def best(self) -> int | None:
        """The place of the best check; None before the first, and where no loss is finite."""
        finite = [at for at, loss in enumerate(self.losses) if math.isfinite(loss)]
        return min(finite, key=lambda at: self.losses[at], default=None)

    def waited(self, tolerance: float) -> int:
        """How many checks have passed since the last fall.

        Where the loss before training is not finite, the first that is finite is a fall, and the scale of tolerance.
        """
        last, scale, since = self.before, abs(self.before), 0
        for loss in self.losses:
            if not math.isfinite(last) and math.isfinite(loss):
                last, scale, since = loss, abs(loss), 0
            elif loss < last - tolerance * scale:
                last, since = loss, 0
            else:
                since += 1
        return since
