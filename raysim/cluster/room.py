"""A limited wait for free resources, with a message, on a Ray that is occupied by other work."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from raysim.cluster.placement import Placement
from raysim.config.nodes import Node, amount
from raysim.core.errors import ResourceError

RESERVE_SECONDS = 25.0
"""Seconds to wait for free resources on running nodes."""

SAY_SECONDS = 3.0

LOOK_SECONDS = 0.1

GROW_SECONDS = 900.0
"""The seconds that an autoscaler may take to start nodes."""


def reserve(placement: Placement, nodes: Sequence[Node]) -> Any:
    """Return a placement group that reserves the actors' resources on each machine.

    Returns None if Ray places the actors correctly without one. Raises ``ResourceError`` if the resources do not become
    free.
    """
    grows = not all(nodes[i].started for i in placement.nodes)
    if len(set(placement.nodes)) < 2 and not placement.overrides and not grows:
        count = len(placement.served)
        await_room(count * placement.cpus, count * placement.gpus)
        return None
    from ray.util.placement_group import placement_group, remove_placement_group

    bundles = placement.bundles()
    group = placement_group(bundles, strategy="SPREAD")
    if grows:
        print(f"raysim: waiting for nodes to start: {_texts(bundles)}", file=sys.stderr)
    try:
        _await(group.wait, f"{_texts(bundles)}, each on a separate node,", GROW_SECONDS if grows else RESERVE_SECONDS)
    except ResourceError:
        remove_placement_group(group)
        raise
    return group


def await_room(cpus: float, gpus: float = 0.0) -> None:
    """Wait until Ray has ``cpus`` CPUs and ``gpus`` GPUs free. Raises ``ResourceError`` if this takes too long."""
    import ray

    def room(seconds: float) -> bool:
        end = time.monotonic() + seconds
        while True:
            free = ray.available_resources()
            if all(free.get(kind, 0.0) >= asked - 1e-4 for kind, asked in (("CPU", cpus), ("GPU", gpus))):
                return True
            if time.monotonic() > end:
                return False
            time.sleep(LOOK_SECONDS)

    _await(room, amount(cpus, gpus), RESERVE_SECONDS)


def _await(there: Callable[[float], bool], what: str, seconds: float) -> None:
    """Wait until ``what`` is free: ``there(limit)`` waits for up to ``limit`` seconds, and returns whether it is.

    If the wait is long, a message is printed. Raises ``ResourceError`` after ``seconds``.
    """
    import ray

    def held() -> str:
        free, whole = ray.available_resources(), ray.cluster_resources()
        return " of ".join(amount(each.get("CPU", 0.0), each.get("GPU", 0.0)) for each in (free, whole))

    if there(min(seconds, SAY_SECONDS)):
        return
    print(f"raysim: waiting for {what}: other work uses this Ray; {held()} are free", file=sys.stderr)
    if not there(seconds):
        raise ResourceError(
            f"resources: {what} did not become free within {seconds:g} s (free on all nodes: {held()}); stop other "
            "work on the cluster, or request less"
        )


def _texts(bundles: Sequence[dict[str, float]]) -> str:
    return ", ".join(amount(bundle.get("CPU", 0.0), bundle.get("GPU", 0.0)) for bundle in bundles)
