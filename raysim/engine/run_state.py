"""The state of a run: what it goes on from, and what it records meanwhile."""

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
    """The record of a job so far: what a resumed run goes on writing."""

    rounds: list[Round]
    """Its rounds, the last one not evaluated yet."""
    ledger: Ledger
    """What has left hospitals."""
    seconds: float
    """How long it took, in seconds of real time."""
    setup_down: int
    """Bytes that hospitals received before the first round."""
    models_held: Ids
    """As :attr:`raysim.traffic.exchange.Traffic.models_held`, ``[N]``."""
    losses: TrainingLosses = field(default_factory=TrainingLosses)
    """Training losses, beside those of the rounds."""
    cohorts: list[Ids | None] = field(default_factory=list)
    """Who was asked for an update in each round; None: nobody was, as models stay where they are."""

    def copy(self) -> History:
        """A copy that a run may change."""
        return replace(
            self,
            rounds=[replace(row, metrics={name: dict(of) for name, of in row.metrics.items()}) for row in self.rounds],
            ledger=Ledger(list(self.ledger.entries)),
            models_held=self.models_held.copy(),
            cohorts=list(self.cohorts),
        )


@dataclass(eq=False)
class RunState:
    """The state of a job: what it can go on from, with the same hyper-parameters or others."""

    round: int
    """The round after which it was taken; 0: before the first."""
    state: State
    """The strategy's state."""
    kept: HospitalStates | None
    """What hospitals remember, None where no strategy has let them."""
    memory: Any = None
    """What the selection remembers."""
    history: History | None = None
    """The record so far. With one this is a checkpoint: the job goes on as if it had never stopped."""
    clock: Clock | None = None
    """The virtual clock, with what is under way between hospitals and server; None without one."""
    stopping: Stopping | None = None
    """The checks on validation rows so far, where the job may stop early."""
    reception: Any = None
    """What privacy guarantees carry from round to round, in plain values; see :attr:`UpdatePipeline.guaranteed`."""
    best: RunState | None = None
    """The state after the best of these checks, as far as the job needs it to end with its models."""
    attacks: Any = None
    """What attacks and robust rules carry from round to round, in plain values; None without."""


Event = Round | Outcome | RunState
"""What a run yields while it is played."""
