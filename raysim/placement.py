"""Which actor serves which hospital, and what each actor holds."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from raysim.errors import ResourceError
from strategies.base import Ids

if TYPE_CHECKING:
    from raysim.config import Resources


@dataclass(frozen=True)
class Placement:
    """``served``: the hospital ids of each actor, ascending; ``cpus`` and ``gpus`` that each actor holds."""

    served: tuple[Ids, ...]
    cpus: float
    gpus: float


def place(rows: Ids, resources: Resources, cpus: float, gpus: float) -> Placement:
    """Spread hospitals with ``rows [N]`` over actors, given what the cluster has in all.

    Raises ``ResourceError`` where the actors that ``resources`` asks for cannot run at once.
    """
    count = actor_count(len(rows), resources, cpus, gpus)
    share = resources.cpus_per_actor
    if share is None:
        # Ray counts resources in ten-thousandths; a share must round down or the last actor would never start.
        share = min(1.0, math.floor(1e4 * cpus / count) / 1e4)
    _check("cpus_per_actor", "CPUs", count, share, cpus)
    _check("gpus_per_actor", "GPUs", count, resources.gpus_per_actor, gpus)
    return Placement(balance(rows, count), share, resources.gpus_per_actor)


def actor_count(hospitals: int, resources: Resources, cpus: float, gpus: float) -> int:
    """How many actors serve the hospitals: by ``hospitals_per_actor``, or as many as can run at once."""
    if resources.hospitals_per_actor != "auto":
        return math.ceil(hospitals / int(resources.hospitals_per_actor))
    fits = cpus / (resources.cpus_per_actor or 1.0)
    if resources.gpus_per_actor:
        fits = min(fits, _packed(gpus, resources.gpus_per_actor))
    if fits < 1:
        # One actor that cannot run makes the check that follows name what is missing.
        return 1
    return min(hospitals, int(fits + 1e-9))


def balance(rows: Ids, actors: int) -> tuple[Ids, ...]:
    """Hospitals to actors, largest first onto the least loaded, ties to the first; ascending ids within an actor."""
    loads = [(0, actor) for actor in range(actors)]
    served: list[list[int]] = [[] for _ in range(actors)]
    for hospital in sorted(range(len(rows)), key=lambda h: (-rows[h], h)):
        load, actor = heapq.heappop(loads)
        served[actor].append(hospital)
        # The addend keeps hospitals without rows from piling up on one actor.
        heapq.heappush(loads, (load + int(rows[hospital]) + 1, actor))
    return tuple(np.array(sorted(ids), dtype=np.int64) for ids in served)


def _packed(gpus: float, share: float) -> float:
    """How many shares fit: an actor's fraction of a GPU lies on one device, so that remainders are lost."""
    return gpus * math.floor(1 / share + 1e-9) if share <= 1 else gpus / share


def _check(field: str, what: str, count: int, each: float, available: float) -> None:
    if field == "gpus_per_actor" and each > 1 and each != int(each):
        raise ResourceError(f"resources.{field}: {each} is more than one GPU but not whole; use {math.ceil(each)}")
    fits = _packed(available, each) if field == "gpus_per_actor" and each else available / each if each else count
    if fits + 1e-9 < count:
        raise ResourceError(
            f"resources.{field}: {count} actors x {each:g} need {count * each:g} {what}, and there are {available:g}; "
            f"lower it or serve more hospitals per actor"
        )


def describe(sizes: Sequence[int]) -> str:
    """A short text such as ``2 actors, 104 hospitals each`` for progress lines."""
    low, high = min(sizes), max(sizes)
    return f"{len(sizes)} actors, {low if low == high else f'{low} to {high}'} hospitals each"
