"""Fetches replies of Ray's actors, and raises errors without Ray's wrapping."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raysim.core.errors import ResourceError


def first_answers(asked: Sequence[Any], seconds: float, kind: str, remedy: str) -> list[Any]:
    """Wait for the first reply of each actor, and return the replies.

    ``asked`` has a reference to the reply of each actor; ``kind`` names the actors in errors. Raises ``ResourceError``
    if replies do not arrive within ``seconds`` (the message ends with ``remedy``), or if an actor cannot start.
    """
    import ray

    try:
        answers: list[Any] = ray.get(list(asked), timeout=seconds)
    except ray.exceptions.GetTimeoutError:
        raise ResourceError(
            f"resources: {len(asked)} {kind}s had not started after {seconds:g} s, and Ray has "
            f"{ray.available_resources()} free; stop other work on this Ray, or {remedy}"
        ) from None
    except ray.exceptions.RayActorError as error:
        raise ResourceError(
            f"resources: a {kind} could not start ({_last_line(error)}); install raysim and the packages of "
            "constraints.txt on every node"
        ) from None
    return answers


def fetch(refs: Any) -> Any:
    """Return the values of Ray references. A remote error is raised as it is, without Ray's wrapping."""
    import ray

    try:
        return ray.get(refs)
    except ray.exceptions.RayTaskError as error:
        raise cause_of(error) from None


def cause_of(error: Any) -> Exception:
    """Return the exception that a remote call raised, without Ray's wrapping."""
    import ray

    cause = error
    while getattr(cause, "cause", None) is not None and cause.cause is not cause:
        cause = cause.cause
    last = _last_line(cause)
    if isinstance(cause, ray.exceptions.RaySystemError) and last.startswith(("ModuleNotFoundError", "ImportError")):
        # Ray could not unpickle an argument there.
        return unimportable(last)
    return cause if isinstance(cause, Exception) else error


def unimportable(what: str) -> ResourceError:
    """Return the error for a message that cannot be unpickled on a node because the node lacks a module."""
    return ResourceError(
        f"resources: a module that the run uses cannot be imported on every node ({what}); install the same modules "
        "on all nodes, or put them into a folder that PYTHONPATH names"
    )


def has_died(ref: Any) -> bool:
    """Return whether the reply ``ref`` will never arrive because its actor is dead."""
    import ray

    try:
        ray.get(ref, timeout=0)
    except ray.exceptions.RayActorError:
        return True
    except ray.exceptions.RayError:
        return False
    return False


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or the name of its type."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
