"""An actor's cache of its hospitals' memory, which the hospitals store between rounds.

Because of the cache, later calls need not send the memory to the actor. An actor stores nothing else. If memory is no
longer cached, the call is repeated with the memory.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NewType

from raysim.engine.messages.memory import HospitalStates
from raysim.engine.messages.plan import RoundPlan

RECENT = 8
"""How many memories an actor caches, one for each run that may share the actor."""


def keeps_memory(plan: RoundPlan) -> bool:
    """Return whether an actor caches the memory of ``plan``, for later calls of the same program in the round."""
    return plan.problem is None and plan.call is not None and plan.remembers


Made = NewType("Made", str)
"""The name of the memory that a Ray task returned: the task's id, which Ray sends faster than an object."""


def made_by(reference: Any) -> Made:
    """Return the name of the memory to which a Ray ``reference`` refers."""
    return Made(reference.task_id().hex())


class Forgotten(Exception):
    """An actor does not have the memory of the requested name, for instance because it was restarted."""


class RecentMemory:
    """The memories that an actor's recent calls have returned, by name."""

    def __init__(self) -> None:
        self._states: OrderedDict[Made, HospitalStates] = OrderedDict()

    def add(self, made: Made, states: HospitalStates) -> None:
        """Store ``states``, and drop the oldest memories beyond :data:`RECENT`."""
        self._states[made] = states
        while len(self._states) > RECENT:
            self._states.popitem(last=False)

    def of(self, made: Made) -> HospitalStates:
        """Return the memory named ``made``; do not change it. Raises :class:`Forgotten` if it is not cached."""
        if made not in self._states:
            raise Forgotten(made)
        return self._states[made]
