"""How hospitals' rows reach the actors that serve them.

Where an actor can read the folder of the federation (one machine, a shared file system), it maps it and touches only
its hospitals' rows. Where it cannot, its hospitals' rows are shipped to it through Ray's object store, once for each
federation: an actor never receives rows of hospitals that it does not serve. Only the actor that trains on pooled rows
is sent everybody's, and only when a strategy asks for that.
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
"""``auto`` ships to the actors that cannot read the folder, ``shared`` is an error there, ``shipped`` ships to all."""

KEPT = 8
"""Federations that are held at once, by the pool and by an actor: one for each seed of a comparison, mostly."""

SECONDS = 30.0
"""How long an actor may take to look for a folder, before its file system is taken for gone."""


def part_of(federation: Federation, served: Ids, *, training_of_all: bool = False) -> Federation:
    """A federation in which only hospitals ``served`` have rows; ids and names stay those of the whole.

    With ``training_of_all`` it has the training rows of all other hospitals too.
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
    """What two readers of one folder must agree on."""
    return federation.fingerprint, federation.X.shape, len(federation.hospitals), int(federation.bounds.sum())


class Unreadable(ResourceError):
    """An actor cannot read a folder that it could read before, or that its predecessor could before a restart."""


class Receiver:
    """How an actor gets its rows: it maps the file, unless rows were shipped to it."""

    def __init__(self) -> None:
        self._shipped: dict[tuple[str, bool], Any] = {}

    def accept(self, folder: str, shipment: Shipment | None) -> None:
        """Note the shipment of a call; its rows are fetched when they are first needed, also after a restart."""
        if shipment is None:
            return
        for pooled, ref in zip((False, True), shipment, strict=True):
            if ref is not None:
                self._shipped[folder, pooled] = ref
        while len(self._shipped) > 2 * KEPT:
            del self._shipped[next(iter(self._shipped))]

    def open(self, folder: str, pooled: bool) -> Federation:
        """The federation in ``folder``, at least with the rows of the actor's hospitals, or with all to train on."""
        ref = self._shipped.get((folder, pooled))
        if ref is None:
            try:
                return Federation.open(folder)
            except OSError as error:
                raise Unreadable(f"resources.data: '{folder}' cannot be read any more ({error.strerror})") from None
        import ray

        federation: Federation = ray.get(ref)
        return federation

    def reads(self, folder: str, expected: tuple[Any, ...]) -> bool:
        """Whether this process can map the folder, and its :func:`identity` is ``expected``."""
        try:
            return identity(Federation.open(folder)) == expected
        except (OSError, ValueError, KeyError):
            return False


Shipment = tuple[Any, Any]
"""References to an actor's own part of a federation and to the part with all training rows (or None)."""


STILL = (False, "a node that stands still")
"""Stands for the answer of an actor that gives none: whether it reads a folder, and the name of its node."""


def _answer(ref: Any) -> tuple[bool, str]:
    """An actor's answer. Of one that was lost, and may be restarted when it is called, nothing is known."""
    import ray

    try:
        answer: tuple[bool, str] = ray.get(ref)
    except ray.exceptions.RayActorError:
        return STILL
    return answer


class Sender:
    """The pool's side: finds out once for each federation which actors need a shipment, and keeps what it sent."""

    def __init__(self, served: Sequence[Ids], delivery: Delivery) -> None:
        self._served = served
        self._delivery = delivery
        self._sent: dict[str, list[Any]] = {}
        self._pooled: dict[str, Any] = {}

    def shipments(self, folder: str, actors: Sequence[Any], *, pooled: bool) -> list[Shipment | None]:
        """The shipment that each actor gets with a call on the federation in ``folder``; None where it maps the folder.

        Raises ``ResourceError`` where the folder must be shared and is not.
        """
        import ray

        if folder not in self._sent:
            self._sent[folder] = self._send(folder, actors)
        if pooled and folder not in self._pooled and self._sent[folder][0] is not None:
            whole = part_of(Federation.open(folder), self._served[0], training_of_all=True)
            self._pooled[folder] = ray.put(whole)
        for held in (self._sent, self._pooled):
            while len(held) > KEPT:
                del held[next(iter(held))]
        everybody = self._pooled.get(folder)
        return [
            None if ref is None else (ref, everybody if i == 0 else None) for i, ref in enumerate(self._sent[folder])
        ]

    def forget(self, folder: str) -> None:
        """Find out again who needs a shipment: an actor was started again, on a node that cannot read the folder."""
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
