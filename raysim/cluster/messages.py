"""Messages that are the same for all actors."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from raysim.engine.messages.plan import RoundPlan

SMALL = 2**16
"""Size in bytes up to which a plan travels within the call of each actor, which any Ray allows."""


class _Pickled:
    """An object that is pickled once for several calls, and arrives as itself."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        return pickle.loads, (self._content,)


def shared_by_all(plan: RoundPlan) -> Any:
    """Return an argument for the calls of all actors, which receive ``plan``: the pickled plan, or a reference to it in
    the object store if it is large."""
    import ray

    if plan.models.nbytes < SMALL:
        content = ray.cloudpickle.dumps(plan)
        if len(content) < SMALL:
            return _Pickled(content)
    return ray.put(plan)
