"""The hospitals' processes as the coordinator sees them, wherever they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from raysim.engine.messages.memory import HospitalStates
from raysim.engine.messages.plan import Inquiry, PartialResult, RoundPlan
from raysim.strategies.base import Floats, Ids

StateReferences = Sequence[Any]
"""What the hospitals of each process remember: a value, or an object reference that stays where it was made."""


class Pool(Protocol):
    """Processes that serve hospitals; every result is in the order of ``served``."""

    served: tuple[Ids, ...]

    def round(self, plan: RoundPlan, memory: StateReferences | None) -> tuple[list[PartialResult], StateReferences]:
        """Run a plan everywhere; returns the partial results and what hospitals then remember."""
        ...

    def ask(self, inquiry: Inquiry, memory: StateReferences | None = None) -> list[list[Floats]]:
        """The answers, per process; hospitals' private parameters are as in ``memory``."""
        ...

    def recall(self, memory: StateReferences) -> HospitalStates:
        """Fetch what hospitals remember."""
        ...
