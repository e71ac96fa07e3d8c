"""The access of actors to the rows of their hospitals.

An actor that can read the federation's folder maps the files into memory and reads only its hospitals' rows. Other
actors receive their hospitals' rows through Ray's object store, once per federation. Only an actor that trains on
pooled rows receives rows of other actors' hospitals.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from raysim.core.errors import ResourceError
from raysim.data.federation import Federation
from raysim.strategies.base import Ids

Delivery = Literal["auto", "shared", "shipped"]
"""How actors get rows. ``auto``: rows are shipped to actors that cannot read the federation's folder. ``shared``: all
actors read the folder. ``shipped``: rows are shipped to all actors.
"""

CACHED = 8
"""The largest number of federations whose shipped rows the pool keeps. An actor keeps references to at most twice
this number of shipped objects."""

SECONDS = 30.0
"""Seconds that actors have to check whether they can read a folder."""


def part_of(federation: Federation, served: Ids, *, training_of_all: bool = False) -> Federation:
    """Return a copy of the federation that has only the rows of the hospitals with the ids ``served``.

    The other hospitals keep their ids and names, and with ``training_of_all`` also their training rows.
    """
    bounds, mine = federation.bounds, set(served.tolist())
    chosen, new = [], np.zeros_like(bounds)
    position = 0
    for hospital in range(len(bounds)) if training_of_all else sorted(mine):
        start, trained, _, end = bounds[hospital].tolist()
        stop = end if hospital in mine else trained
        chosen.append(np.arange(start, stop))
        new[hospital] = np.minimum(bounds[hospital], stop) - start + position
        position += stop - start
    rows = np.concatenate(chosen) if chosen else np.empty(0, dtype=np.int64)
    part = dataclasses.replace(
        federation, X=federation.X[rows], y=federation.y[rows], observed=federation.observed[rows], bounds=new
    )
    # These are otherwise read from the folder, which the receiver may not see.
    if (federation.folder / "people.npy").exists():
        vars(part)["people"] = federation.people[rows]
    vars(part)["identities"] = federation.identities[rows]
    if (federation.folder / "source_rows.npy").exists():
        vars(part)["source_rows"] = federation.source_rows[rows]
    vars(part)["levels"] = federation.levels
    vars(part)["patients"] = {name: values[rows] for name, values in federation.patients.items()}
    return part


def identity(federation: Federation) -> tuple[Any, ...]:
    """Return properties by which two processes check that they read the same federation from a folder."""
    return federation.fingerprint, federation.X.shape, len(federation.hospitals), int(federation.bounds.sum())


class Unreadable(ResourceError):
    """Raised if an actor cannot read a federation's folder that it could read before."""


class Receiver:
    """Gives an actor its hospitals' rows: read from the federation's folder, or shipped to the actor."""

    def __init__(self) -> None:
        self._shipped: dict[tuple[str, bool], Any] = {}

    def accept(self, folder: str, shipment: Shipment | None) -> None:
        """Store the references to the shipped rows of a call."""
        if shipment is None:
            return
        for pooled, ref in zip((False, True), shipment, strict=True):
            if ref is not None:
                self._shipped[folder, pooled] = ref
        while len(self._shipped) > 2 * CACHED:
            del self._shipped[next(iter(self._shipped))]

    def open(self, folder: str, pooled: bool) -> Federation:
        """Return the federation in ``folder``, with at least the rows of the actor's hospitals.

        With ``pooled``, it also has the training rows of all other hospitals.
        """
        ref = self._shipped.get((folder, pooled))
        if ref is None:
            try:
                return Federation.open(folder)
            except OSError as error:
                raise Unreadable(
                    f"resources.data: '{folder}' can no longer be read ({error.strerror}); make it readable, then run "
                    "again"
                ) from None
        import ray

        federation: Federation = ray.get(ref)
        return federation

    def reads(self, folder: str, expected: tuple[Any, ...]) -> bool:
        """Return whether ``folder`` has a federation that this process can read, with the ``expected``
        :func:`identity`.
        """
        try:
            return identity(Federation.open(folder)) == expected
        except (OSError, ValueError, KeyError):
            return False


Shipment = tuple[Any, Any]
"""Two references to objects in Ray's object store: an actor's part of a federation, and this part with the training
rows of all hospitals. The second is None unless the actor trains on pooled rows.
"""


STILL = (False, "a node that does not reply")
"""The reply assumed for an actor that does not reply: it cannot read the folder, and its node is unknown."""


def _answer(ref: Any) -> tuple[bool, str]:
    import ray

    try:
        answer: tuple[bool, str] = ray.get(ref)
    except ray.exceptions.RayActorError:
        return STILL
    return answer


class Sender:
    """Finds out to which actors rows must be shipped, and stores these rows in Ray's object store."""

    def __init__(self, served: Sequence[Ids], delivery: Delivery) -> None:
        self._served = served
        self._delivery = delivery
        self._sent: dict[str, list[Any]] = {}
        self._pooled: dict[str, Any] = {}

    def shipments(self, folder: str, actors: Sequence[Any], *, pooled: bool) -> list[Shipment | None]:
        """Return references to the rows to ship with each actor's call; None for actors that read ``folder``.

        With ``pooled``, the first actor also receives the training rows of all hospitals. Raises ``ResourceError`` if
        the configuration requires that all actors read the folder and one cannot.
        """
        import ray

        if folder not in self._sent:
            self._sent[folder] = self._send(folder, actors)
        if pooled and folder not in self._pooled and self._sent[folder][0] is not None:
            whole = part_of(Federation.open(folder), self._served[0], training_of_all=True)
            self._pooled[folder] = ray.put(whole)
        for held in (self._sent, self._pooled):
            while len(held) > CACHED:
                del held[next(iter(held))]
        everybody = self._pooled.get(folder)
        return [
            None if ref is None else (ref, everybody if i == 0 else None) for i, ref in enumerate(self._sent[folder])
        ]

    def forget(self, folder: str) -> None:
        """Forget to which actors the rows of ``folder`` are shipped, because an actor was restarted on another node."""
        self._sent.pop(folder, None)
        self._pooled.pop(folder, None)

    def _send(self, folder: str, actors: Sequence[Any]) -> list[Any]:
        import ray

        federation = Federation.open(folder)
        answers = [(False, "")] * len(actors)
        if self._delivery != "shipped":
            asked = [actor.reads.remote(folder, identity(federation)) for actor in actors]
            answered, _ = ray.wait(asked, num_returns=len(asked), timeout=SECONDS)
            answers = [_answer(ref) if ref in answered else STILL for ref in asked]
        blind = sorted({node for reads, node in answers if not reads})
        if self._delivery == "shared" and blind:
            more = f" and {len(blind) - 3} more nodes" if len(blind) > 3 else ""
            raise ResourceError(
                f"resources.data: shared, but '{folder}' cannot be read on {', '.join(blind[:3])}{more}; set "
                "RAYSIM_CACHE to a folder that all nodes mount, or use auto"
            )
        return [
            None if reads else ray.put(part_of(federation, served))
            for served, (reads, _) in zip(self._served, answers, strict=True)
        ]
