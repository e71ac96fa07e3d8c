"""Early stopping: when the loss on validation rows ends a run.

After each round, the mean loss of the main model over the validation rows of all hospitals is computed. It is the loss
that training minimises, with its class weights, but without penalties and without the strategy's own terms. The round
with the smallest validation loss is the best (the earliest, if several are equal), and its models become the models of
the run.

A run stops after ``patience`` checks in a row in which the loss has not fallen by more than ``tolerance`` times the
loss before training. Each loss is compared with the loss at the last such fall, or with the loss before training if
there has been none. If the loss before training is not finite, the first finite loss replaces it and counts as a fall.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from raysim.config.sections.training import StopSection
from raysim.core.early_stopping import Checks
from raysim.strategies.base import Ids


@dataclass(frozen=True)
class Stopping:
    """The validation losses of a run so far, and the rule of early stopping."""

    section: StopSection
    before: Mapping[str, float] = field(default_factory=dict)
    """The validation loss of each evaluated model before training, by name."""
    model: str | None = None
    """The name of the model whose validation loss is checked; None before the first check."""
    rounds: tuple[int, ...] = ()
    """The rounds after which the validation loss was checked."""
    losses: tuple[float, ...] = ()
    """The validation loss of the checked model after each of ``rounds``."""

    def watched(self, serve: Mapping[str, Ids]) -> str:
        """Return the name of the model in ``serve`` whose validation loss is checked."""
        return self.model or list(serve)[-1]

    def after(self, round: int, model: str, loss: float) -> Stopping:
        """Return this record with one more check: the ``loss`` of ``model`` on validation rows after ``round``."""
        return replace(self, model=model, rounds=(*self.rounds, round), losses=(*self.losses, loss))

    def packed(self) -> dict[str, Any]:
        """Return this record as plain values for JSON."""
        return {**asdict(self), "section": self.section.model_dump()}

    @staticmethod
    def unpacked(tree: Mapping[str, Any]) -> Stopping:
        """Return the record from the result of :meth:`packed`."""
        lists = {name: tuple(tree[name]) for name in ("rounds", "losses")}
        return Stopping(StopSection(**tree["section"]), tree["before"], tree["model"], **lists)

    @property
    def best(self) -> int | None:
        """Return the round with the smallest validation loss; None if no loss is finite."""
        at = self._checks.best
        return None if at is None else self.rounds[at]

    @property
    def over(self) -> bool:
        """Whether the run stops early, given the validation losses so far."""
        return self._checks.waited(self.section.tolerance) >= self.section.patience

    @property
    def _checks(self) -> Checks:
        return Checks(self.before.get(self.model or "", math.nan), self.rounds, self.losses)


@dataclass(frozen=True)
class Stopped:
    """How a run with early stopping ended."""

    before: float
    """The validation loss of the checked model before training; NaN if not measured."""
    model: str
    early: bool
    """Whether the run ended because the validation loss no longer fell."""
    last: int
    """The last round that was run."""
    served: int
    """The round whose models became the models of the run."""
    loss: float
    """The validation loss of the run's models."""

    @staticmethod
    def of(stopping: Stopping) -> Stopped | None:
        """Return how a run with these validation losses ended; None if no loss was checked."""
        if stopping.model is None:
            return None
        last = stopping.rounds[-1]
        served = last if stopping.best is None else stopping.best
        loss = stopping.losses[stopping.rounds.index(served)]
        before = stopping.before.get(stopping.model, math.nan)
        return Stopped(before, stopping.model, stopping.over, last, served, loss)
