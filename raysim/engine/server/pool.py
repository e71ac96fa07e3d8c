"""The coordinator's interface to the processes in which hospitals run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from raysim.engine.messages.memory import HospitalStates
from raysim.engine.messages.plan import PartialResult, RoundPlan
from raysim.strategies.base import Ids

StateReferences = Sequence[Any]
"""The memory of each process's hospitals: a value, or a reference to an object that stays where it was made."""


class Pool(Protocol):
    """The processes that run hospitals. Every result is in the order of ``served``."""

    served: tuple[Ids, ...]

    def round(self, plan: RoundPlan, memory: StateReferences | None) -> tuple[list[PartialResult], StateReferences]:
        """Run a plan in all processes; return the partial results and the hospitals' new memory."""

    def recall(self, memory: StateReferences) -> HospitalStates:
        """Fetch the hospitals' memory."""
