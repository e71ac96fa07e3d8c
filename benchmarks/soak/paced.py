"""Strategies that take their time and stop for faults. A copy of this file stands where commands are typed."""

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

PASS = "pass-"
"""How files begin of which each lets one run pass once."""

ROUND, WAITING, TAKEN = "round-", "waiting-", "taken-"
"""How files begin that say in which round a process is, that it waits there, and that it has taken a pass; its process
id follows."""


def stop(gate: Path, pace: float, every: int, number: int) -> None:
    """Sleep for ``pace`` seconds; in every so many-th round, until the gate is open or a pass can be taken."""
    (gate / f"{ROUND}{os.getpid()}").write_text(str(number))
    time.sleep(pace)
    if number % every:
        return
    mark, taken = (gate / f"{name}{os.getpid()}" for name in (WAITING, TAKEN))
    mark.write_text(str(number))
    while not (gate / OPEN).exists() and not any(_moved(path, taken) for path in gate.glob(f"{PASS}*")):
        time.sleep(0.02)
    mark.unlink(missing_ok=True)
    taken.unlink(missing_ok=True)


def _moved(path: Path, to: Path) -> bool:
    try:
        path.rename(to)
    except FileNotFoundError:  # another run has taken it
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class Paced(Strategy):
    """Sleeps ``pace`` seconds a round, and stops in every ``every``-th at the ``gate``, a folder."""

    gate: str
    pace: float
    every: int

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        stop(Path(self.gate), self.pace, self.every, view.round)
        return super().aggregate(view, state, update)


@dataclass(frozen=True, kw_only=True)
class PacedChip(Paced, Chip):
    """CHiP-FL, paced."""


@dataclass(frozen=True, kw_only=True)
class PacedAvg(Paced, FedAvg):
    """FedAvg, paced."""
