"""The addition of actors' sums within nodes and groups of nodes, before they are sent to the coordinator.

Every actor computes the sum of its hospitals' updates. One actor of each node adds the sums of its node.
With many nodes, groups of up to :data:`MOST_SUMS` sums are added again, until at most :data:`MOST_SUMS` remain for the
coordinator.

The summands, including masks of secure aggregation, are integers (:mod:`raysim.core.exact`). The result is therefore
bit-identical in whatever order sums are added.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from raysim.engine.messages.plan import RoundPlan
from raysim.engine.messages.update_sums import sum_count
from raysim.strategies.base import POOLED, Ids

Group = tuple[int, ...]
"""The indices of actors whose sums are added together; the first actor adds them."""

MOST_SUMS = 8
"""The largest number of sums that are added by the coordinator, or by one actor for several nodes."""

LEAST_BYTES = 2**17
"""Actors' sums are added within nodes if each has at least this size in bytes.

Ray sends results of up to 100 KiB without a separate call.
"""


def sums_bytes(plan: RoundPlan) -> int:
    """Return the number of bytes of an actor's sum of its hospitals' updates."""
    if plan.problem is None:
        return 0
    size = plan.models.shape[1]
    count = sum_count(plan.problem, size)
    return 8 * size * (count + plan.bit) if count else 0


def additions(actors: Sequence[int], nodes: Sequence[int]) -> list[list[Group]]:
    """Return the groups of actors whose sums are added together, as a list of levels.

    All groups of a level can be added at the same time, but only after the previous level. ``actors`` are the indices
    of the actors that have sums. ``nodes`` has the index of each actor's node.
    """
    by_node: dict[int, list[int]] = {}
    for actor in actors:
        by_node.setdefault(nodes[actor], []).append(actor)
    groups = [tuple(members) for members in by_node.values()]
    levels = [groups]
    while len(groups) > MOST_SUMS:
        holders = [group[0] for group in groups]
        groups = [tuple(holders[first : first + MOST_SUMS]) for first in range(0, len(holders), MOST_SUMS)]
        levels.append(groups)
    several = ([group for group in level if len(group) > 1] for level in levels)
    return [level for level in several if level]


def with_sums(plan: RoundPlan, served: Sequence[Ids]) -> frozenset[int]:
    """Return the indices of the actors that have sums to add; none if sums are too small to be added within nodes.

    ``served`` has the hospitals of each actor.
    """
    if sums_bytes(plan) < LEAST_BYTES:
        return frozenset()
    return frozenset(
        i for i, ids in enumerate(served) if np.isin(plan.ids, ids).any() or (i == 0 and POOLED in plan.ids)
    )


def added(sums: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the sum of arrays of the same shape."""
    total = sums[0].copy()
    for others in sums[1:]:
        total += others
    return total
