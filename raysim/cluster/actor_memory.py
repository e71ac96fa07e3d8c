"""Hospitals' memory that an actor has made and still has, so that its next calls need not carry it.

An actor stays pure: this is a cache, and a call for memory that the actor no longer has is repeated with the memory.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NewType

from raysim.engine.messages.memory import HospitalStates
from raysim.engine.messages.plan import RoundPlan

RECENT = 8
"""How many memories an actor keeps, one for each of the runs that may share it."""


def keeps_memory(plan: RoundPlan) -> bool:
    """Return whether an actor stores a plan's memory, which the round's further calls of a program may read."""
    return plan.problem is None and plan.call is not None and plan.remembers


Made = NewType("Made", str)
"""The memory that a Ray task returned: the task's id, which Ray sends faster than an object."""


def made_by(reference: Any) -> Made:
    """Return the memory that a ``reference`` stands for."""
    return Made(reference.task_id().hex())


class Forgotten(Exception):
    """Raised by an actor that does not have the named memory, as after a restart."""


class RecentMemory:
    """The memory that an actor's last calls have made."""

    def __init__(self) -> None:
        self._states: OrderedDict[Made, HospitalStates] = OrderedDict()

    def add(self, made: Made, states: HospitalStates) -> None:
        """Keep ``states``, and drop the oldest beyond :data:`RECENT`."""
        self._states[made] = states
        while len(self._states) > RECENT:
            self._states.popitem(last=False)

    def of(self, made: Made) -> HospitalStates:
        """Return memory, which the caller only reads. Raises :class:`Forgotten`."""
        if made not in self._states:
            raise Forgotten(made)
        return self._states[made]
