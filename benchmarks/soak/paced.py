"""Strategies that take their time and wait for the fault. A copy of this file stands where commands are typed."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from raysim.strategies.base import FederationView, State, Strategy, Update
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.one_model.fedavg import FedAvg

OPEN = "open"
"""The file in ``gate`` with which every run passes."""


def wait(gate: str, pace: float, late: bool) -> None:
    """Sleep for ``pace`` seconds; where it is ``late``, until the gate is open or a pass for one run can be taken."""
    time.sleep(pace)
    while late and not Path(gate, OPEN).exists():
        for each in Path(gate).glob("pass-*"):
            try:
                os.unlink(each)
            except FileNotFoundError:  # another run has taken it
                continue
            return
        time.sleep(0.02)


@dataclass(frozen=True, kw_only=True)
class Paced(Strategy):
    """Sleeps ``pace`` seconds a round and waits in round ``last`` at the ``gate``, a folder."""

    gate: str
    pace: float
    last: int

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        wait(self.gate, self.pace, view.round == self.last)
        return super().aggregate(view, state, update)


@dataclass(frozen=True, kw_only=True)
class PacedChip(Paced, Chip):
    """CHiP-FL, paced."""


@dataclass(frozen=True, kw_only=True)
class PacedAvg(Paced, FedAvg):
    """FedAvg, paced."""
