"""An actor's cache of its hospitals' memory, which the hospitals store between rounds.

A hospital's memory is the data that it keeps from one call of a program to the next. Because of the cache, later calls
need not send it to the actor again. If an actor no longer has the memory, the call is repeated and sends it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NewType

from raysim.engine.messages.memory import HospitalStates
from raysim.engine.messages.plan import RoundPlan

RECENT = 8
"""The largest number of its hospitals' memories, as returned by earlier calls, that an actor caches. It allows for one
per run that may share the actor."""


def keeps_memory(plan: RoundPlan) -> bool:
    """Return whether actors cache the hospitals' memory after a call of ``plan``, for later calls in the same round."""
    return plan.problem is None and plan.call is not None and plan.remembers


Made = NewType("Made", str)
"""The name of the hospitals' memory that a Ray task returned: the task's id, which Ray sends faster than an object."""


def made_by(reference: Any) -> Made:
    """Return the name of the hospitals' memory to which a Ray ``reference`` refers."""
    return Made(reference.task_id().hex())


class Forgotten(Exception):
    """An actor does not have the hospitals' memory with the requested name, for instance because it was restarted."""


class RecentMemory:
    """The hospitals' memories that an actor's recent calls have returned, by name."""

    def __init__(self) -> None:
        self._states: OrderedDict[Made, HospitalStates] = OrderedDict()

    def add(self, made: Made, states: HospitalStates) -> None:
        """Store the memory ``states`` under the name ``made``, and drop the oldest memories until :data:`RECENT` are
        left."""
        self._states[made] = states
        while len(self._states) > RECENT:
            self._states.popitem(last=False)

    def of(self, made: Made) -> HospitalStates:
        """Return the memory with the name ``made``, which the caller must not change. Raises :class:`Forgotten` if
        there is none."""
        if made not in self._states:
            raise Forgotten(made)
        return self._states[made]
