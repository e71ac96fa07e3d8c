"""The state from which a run is resumed, with the records of the run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from raysim.engine.job import Outcome, Round
from raysim.engine.measuring.losses import TrainingLosses
from raysim.engine.measuring.stopping import Stopping
from raysim.engine.messages.memory import HospitalStates
from raysim.strategies.base import Ids, State
from raysim.traffic.ledger import Ledger
from raysim.virtual_time.clock import Clock


@dataclass(eq=False)
class History:
    """What a job has recorded so far, such as its rounds and its traffic. A resumed run continues this record."""

    rounds: list[Round]
    """The rounds so far. The last round is not evaluated yet."""
    ledger: Ledger
    """Everything that has left hospitals."""
    seconds: float
    """Duration so far in seconds of real time."""
    setup_down: int
    """Bytes that hospitals received before the first round."""
    models_held: Ids
    """See :attr:`raysim.traffic.exchange.Traffic.models_held`, ``[N]``."""
    losses: TrainingLosses = field(default_factory=TrainingLosses)
    """Training losses that are not in the rows of rounds, such as the loss before training."""
    cohorts: list[Ids | None] = field(default_factory=list)
    """The ids of the hospitals called for an update in each round; None for a round that needed no updates."""

    def copy(self) -> History:
        """Return a copy of the record, which a resumed run may change."""
        return replace(
            self,
            rounds=[replace(row, metrics={name: dict(of) for name, of in row.metrics.items()}) for row in self.rounds],
            ledger=Ledger(list(self.ledger.entries)),
            models_held=self.models_held.copy(),
            cohorts=list(self.cohorts),
        )


@dataclass(eq=False)
class RunState:
    """The state of a job after a round. The job can continue from it with the same hyper-parameters or others."""

    round: int
    """The last round whose update the state includes; 0 before the first round."""
    state: State
    """The strategy's state."""
    states: HospitalStates | None
    """The hospitals' memory; None if no strategy has stored any."""
    memory: Any = None
    """The memory of the selection."""
    history: History | None = None
    """The record so far; None without a record. A state with a record is a checkpoint, from which the job continues as
    if it had never stopped."""
    clock: Clock | None = None
    """The virtual clock, including messages in transit between hospitals and server; None without a clock."""
    stopping: Stopping | None = None
    """The checks on validation rows so far; None if the job has no early stopping."""
    reception: Any = None
    """The state of the privacy guarantee that is carried from round to round, in plain values; see
    :attr:`UpdatePipeline.guaranteed`.
    """
    best: RunState | None = None
    """The state after the best validation check, if the job may end with these models."""
    attacks: Any = None
    """The state of attacks and robust rules carried from round to round, in plain values; None without such state."""


Event = Round | Outcome | RunState
"""The values that a run yields."""
