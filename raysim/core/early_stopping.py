"""The rule of early stopping: which check of the loss on validation rows is the best, and when training stops."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.typing import NDArray


class Stop(NamedTuple):
    """The rule that decides when training stops early."""

    patience: int
    """Training ends after this many consecutive checks of the validation loss without a fall by more than the
    tolerance."""
    tolerance: float
    """A fall of the validation loss counts only if it exceeds this share of the validation loss before training."""


class Held(NamedTuple):
    """The validation rows of a hospital that trains alone, and the rule ``stop`` by which its training ends.

    The rows have the features ``X [n, F]`` and the labels ``y [n]``.
    """

    X: NDArray[Any]
    y: NDArray[Any]
    stop: Stop


@dataclass(frozen=True)
class Checks:
    """The validation ``losses`` so far, measured after each of ``rounds``, and the loss ``before`` training."""

    before: float
    rounds: tuple[int, ...] = ()
    losses: tuple[float, ...] = ()

    def after(self, round: int, loss: float) -> Checks:
        """Return these checks followed by the validation ``loss`` after ``round``."""
        return Checks(self.before, (*self.rounds, round), (*self.losses, loss))

    @property
    def best(self) -> int | None:
        """Return the index of the lowest loss, or None if no loss is finite."""
        finite = [at for at, loss in enumerate(self.losses) if math.isfinite(loss)]
        return min(finite, key=lambda at: self.losses[at], default=None)

    def waited(self, tolerance: float) -> int:
        """Return how many checks have passed since the last fall of the validation loss by more than a tolerance.

        Each loss is compared with the loss at the last fall or, before the first fall, with the loss before training.
        ``tolerance`` is a fraction of the loss before training. If that loss is not finite, the first finite loss
        counts as a fall, and ``tolerance`` is a fraction of the first finite loss.
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
