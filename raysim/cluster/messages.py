"""Messages to actors. Each is pickled once, and small messages are sent as plain bytes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.cluster.answers import unimportable
from raysim.engine.messages.memory import HospitalStates
from raysim.engine.messages.plan import RoundPlan

SMALL = 2**16
"""A size in bytes. Smaller plans are sent within each actor's call, and :class:`Joined` joins smaller arrays."""


def shared_by_all(plan: RoundPlan) -> Any:
    """Return the argument that passes ``plan`` to all actors: the pickled plan or, if large, a reference to it."""
    import ray

    if plan.models.nbytes < SMALL:
        content: bytes = ray.cloudpickle.dumps(plan)
        if len(content) < SMALL:
            return content
    return ray.put(plan)


def received(plan: bytes | RoundPlan) -> RoundPlan:
    """Unpickle the plan of a call. Raises ``ResourceError`` if this node lacks a module that the plan needs."""
    if isinstance(plan, RoundPlan):
        return plan
    try:
        made: RoundPlan = pickle.loads(plan)
    except ImportError as error:
        raise unimportable(f"{type(error).__name__}: {error}") from None
    return made


class Joined:
    """The memory of an actor's hospitals, in a form that Ray sends faster. It is unpickled as :data:`HospitalStates`.

    Small arrays with the same name and type are joined into one array, because Ray takes time for each array.
    """

    def __init__(self, states: HospitalStates) -> None:
        self._states = states

    def __reduce__(self) -> tuple[Callable[..., HospitalStates], tuple[Any, ...]]:
        joined: dict[tuple[str, str], list[tuple[int, NDArray[Any]]]] = {}
        apart: HospitalStates = {}
        for hospital, arrays in self._states.items():
            apart[hospital] = {}
            for name, array in arrays.items():
                if array.nbytes < SMALL:
                    joined.setdefault((name, array.dtype.str), []).append((hospital, array))
                else:
                    apart[hospital][name] = array
        return _divided, (apart, [_together(name, of) for (name, _), of in joined.items()])


def _together(name: str, of: list[tuple[int, NDArray[Any]]]) -> tuple[str, list[int], list[Any], NDArray[Any]]:
    arrays = [array for _, array in of]
    return name, [hospital for hospital, _ in of], [array.shape for array in arrays], np.concatenate(arrays, axis=None)


def _divided(states: HospitalStates, joined: list[tuple[str, list[int], list[Any], NDArray[Any]]]) -> HospitalStates:
    for name, hospitals, shapes, values in joined:
        values.flags.writeable = False
        end = 0
        for hospital, shape in zip(hospitals, shapes, strict=True):
            begin, end = end, end + int(np.prod(shape, dtype=np.int64))
            states[hospital][name] = values[begin:end].reshape(shape)
    return states
