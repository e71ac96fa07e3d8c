"""A cache of the hospitals' memory that an actor has made, so that its next calls need not contain it.

An actor stores nothing else: if the memory of a call is no longer cached, the call is repeated with the memory.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NewType

from raysim.engine.messages.memory import HospitalStates
from raysim.engine.messages.plan import RoundPlan

RECENT = 8
"""How many memories an actor caches: one for each of the runs that may share the actor."""


def keeps_memory(plan: RoundPlan) -> bool:
    """Return whether an actor caches a plan's memory, which further calls of a program in the round may read."""
    return plan.problem is None and plan.call is not None and plan.remembers


Made = NewType("Made", str)
"""The memory that a Ray task returned: the task's id, which Ray sends faster than an object."""


def made_by(reference: Any) -> Made:
    """Return the memory to which a ``reference`` refers."""
    return Made(reference.task_id().hex())


class Forgotten(Exception):
    """Raised by an actor that does not have the named memory, for instance after a restart."""


class RecentMemory:
    """The memory that an actor's last calls have made."""

    def __init__(self) -> None:
        self._states: OrderedDict[Made, HospitalStates] = OrderedDict()

    def add(self, made: Made, states: HospitalStates) -> None:
        """Store ``states``, and drop the oldest memories beyond :data:`RECENT`."""
        self._states[made] = states
        while len(self._states) > RECENT:
            self._states.popitem(last=False)

    def of(self, made: Made) -> HospitalStates:
        """Return the memory of a name, which the caller must not change. Raises :class:`Forgotten`."""
        if made not in self._states:
            raise Forgotten(made)
        return self._states[made]
