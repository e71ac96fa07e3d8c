"""An actor's cache of its hospitals' memory: the data that a hospital keeps from one call of a program to the next.

Later calls need not send this memory to the actor again, unless the actor has lost it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NewType

from raysim.engine.messages.memory import HospitalStates
from raysim.engine.messages.plan import RoundPlan

RECENT = 8
"""The largest number of calls whose returned memory an actor caches."""


def keeps_memory(plan: RoundPlan) -> bool:
    """Return whether actors cache the hospitals' memory after the call that ``plan`` describes."""
    return plan.problem is None and plan.call is not None and plan.remembers


Made = NewType("Made", str)
"""The name of the hospitals' memory that a Ray task returned: the task's id."""


def made_by(reference: Any) -> Made:
    """Return the name of the hospitals' memory to which a Ray ``reference`` refers."""
    return Made(reference.task_id().hex())


class Forgotten(Exception):
    """Raised if an actor does not have the requested memory, for instance because it was restarted."""


class RecentMemory:
    """The memory of an actor's hospitals after each of the actor's recent calls, stored under a name."""

    def __init__(self) -> None:
        self._states: OrderedDict[Made, HospitalStates] = OrderedDict()

    def add(self, made: Made, states: HospitalStates) -> None:
        """Store the memory ``states`` under the name ``made``; drop the oldest memories beyond :data:`RECENT`."""
        self._states[made] = states
        while len(self._states) > RECENT:
            self._states.popitem(last=False)

    def of(self, made: Made) -> HospitalStates:
        """Return the memory called ``made``, which must not be changed. Raises :class:`Forgotten` if it is gone."""
        if made not in self._states:
            raise Forgotten(made)
        return self._states[made]
