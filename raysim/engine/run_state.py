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
    """What a job has recorded so far, such as its rounds and its traffic."""

    rounds: list[Round]
    """The rounds so far. The models of the last round have not been evaluated yet."""
    ledger: Ledger
    seconds: float
    """The duration of the run so far in seconds of real time."""
    setup_down: int
    """The bytes that hospitals received before the first round."""
    models_held: Ids
    """For each hospital with an update in progress, the number of models that it needs for the update and already had
    when the update began, ``[N]``; 0 for the other hospitals."""
    losses: TrainingLosses = field(default_factory=TrainingLosses)
    """The training losses that are not stored with a round, such as the loss before training."""
    cohorts: list[Ids | None] = field(default_factory=list)
    """For each round, the ids of the hospitals that were called for an update or a client program; None for a round
    without such calls."""

    def copy(self) -> History:
        """Return a copy that a resumed run can change without changing this record."""
        return replace(
            self,
            rounds=[replace(row, metrics={name: dict(of) for name, of in row.metrics.items()}) for row in self.rounds],
            ledger=Ledger(list(self.ledger.entries)),
            models_held=self.models_held.copy(),
            cohorts=list(self.cohorts),
        )


@dataclass(eq=False)
class RunState:
    """The state of a job after a round, from which the job can continue, also with other hyper-parameters."""

    round: int
    """The last round whose update the state includes; 0 before the first round."""
    state: State
    states: HospitalStates | None
    """What hospitals store between rounds; None if the strategy has not made hospitals store anything."""
    memory: Any = None
    """What the client selection remembers between rounds."""
    history: History | None = None
    """What the job has recorded so far; None if the state is not a checkpoint."""
    clock: Clock | None = None
    """The virtual clock, including messages in transit between hospitals and server; None without a clock."""
    stopping: Stopping | None = None
    """The validation losses so far; None without early stopping."""
    guarantee: Any = None
    """The state of the privacy guarantee, in plain values; see :attr:`UpdatePipeline.guaranteed`."""
    best: RunState | None = None
    """The state after the round with the smallest validation loss; None without early stopping, or if no loss has been
    finite."""
    attacks: Any = None
    """The state of attacks, robust rules and secure aggregation, in plain values; None without such state."""


Event = Round | Outcome | RunState
"""What a run yields: each finished round, checkpoints, and finally the outcome."""
