"""The coordinator's interface to the processes in which hospitals run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from raysim.engine.messages.memory import HospitalStates
from raysim.engine.messages.plan import PartialResult, RoundPlan
from raysim.strategies.base import Ids

StateReferences = Sequence[Any]
"""What hospitals store between rounds. Each process has one element: the values that its hospitals store, or a
reference to these values."""


class Pool(Protocol):
    """The processes that run hospitals.

    ``served`` has one element for each process: the ids of its hospitals. Results and :data:`StateReferences`
    also have one element for each process, in the same order.
    """

    served: tuple[Ids, ...]

    def round(self, plan: RoundPlan, memory: StateReferences | None) -> tuple[list[PartialResult], StateReferences]:
        """Send the instructions ``plan`` and what hospitals have stored (``memory``) to all processes. Return their
        results and what hospitals store until the next round.
        """

    def recall(self, memory: StateReferences) -> HospitalStates:
        """Return what hospitals have stored, fetched from the processes that hold it."""
