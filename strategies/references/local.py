"""Every hospital alone: the reference that federating has to beat.

Each hospital trains on its own rows for as many epochs as a federated participant of every round would, with the same
streams, and uses its own model. Its optimiser keeps its state from round to round, for nothing interrupts it. No
traffic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from raysim.strategies.base import OWN, FederationView, Ids, LocalProblem, State, Strategy, Visit


@dataclass(frozen=True)
class Local(Strategy):
    """No hyper-parameters of its own."""

    title: ClassVar[str] = "Training alone"
    alone: ClassVar[bool] = True
    yardstick: ClassVar[bool] = True

    def uses_selection(self) -> bool:
        return False

    def select(self, view: FederationView, state: State, round: int) -> Ids:
        return view.trainable

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return LocalProblem(start=np.full_like(ids, OWN), visit=Visit(keep=True, carry=True))

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        return {"personal": np.full(len(view.sizes), OWN, dtype=np.int64)}
