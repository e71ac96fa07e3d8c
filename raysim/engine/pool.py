"""The hospitals' processes as the coordinator sees them, wherever they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from raysim.engine.messages import Inquiry, Kept, Partial, Plan
from raysim.strategies.base import Floats, Ids

Memory = Sequence[Any]
"""What the hospitals of each process remember: a value, or an object reference that stays where it was made."""


class Pool(Protocol):
    """Processes that serve hospitals; every result is in the order of ``served``."""

    served: tuple[Ids, ...]

    def round(self, plan: Plan, memory: Memory | None) -> tuple[list[Partial], Memory]:
        """Run a plan everywhere; returns the partial results and what is remembered."""
        ...

    def ask(self, inquiry: Inquiry, memory: Memory | None = None) -> list[list[Floats]]:
        """The answers, per process; hospitals' private parameters are as in ``memory``."""
        ...

    def recall(self, memory: Memory) -> Kept:
        """What hospitals remember, fetched."""
        ...
