"""The coordinator's interface to the processes in which hospitals run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from raysim.engine.messages.memory import HospitalStates
from raysim.engine.messages.plan import PartialResult, RoundPlan
from raysim.strategies.base import Ids

StateReferences = Sequence[Any]
"""What each process's hospitals store between rounds: for each process, a value or a reference to an object in it."""


class Pool(Protocol):
    """The processes that run hospitals. Results have one element for each process.

    ``served`` has the ids of each process's hospitals, in the same order.
    """

    served: tuple[Ids, ...]

    def round(self, plan: RoundPlan, memory: StateReferences | None) -> tuple[list[PartialResult], StateReferences]:
        """Send the instructions ``plan`` and what hospitals have stored (``memory``) to all processes. Return their
        results and what hospitals store until the next round.
        """

    def recall(self, memory: StateReferences) -> HospitalStates:
        """Return what hospitals have stored, fetched from the processes that hold it."""
