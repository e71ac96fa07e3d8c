"""The masking graph: each hospital shares masks with all others, or with a few neighbours on a random ring.

J. H. Bell, K. A. Bonawitz, A. Gascón, T. Lepoint, M. Raykova: *Secure Single-Server Aggregation with (Poly)Logarithmic
Overhead*, CCS 2020, describe such a ring.
"""

from __future__ import annotations

from math import ceil, log2
from typing import Literal

import numpy as np

from raysim.core.arrays import Ids
from raysim.core.streams import stream


def default_neighbours(m: int) -> int:
    """Return the default number of neighbours with which each of ``m`` hospitals shares masks."""
    return min(m - 1, 2 * ceil(1.5 * log2(max(m, 2))) + 6)


def degree(given: Literal["auto", "all"] | int, m: int) -> int:
    """Return the number of neighbours with which each of ``m`` hospitals shares masks."""
    if given == "all":
        return m - 1
    return default_neighbours(m) if given == "auto" else min(int(given), m - 1)


def threshold(given: Literal["auto"] | int, degree: int) -> int:
    """Return how many secret shares are needed to reconstruct a secret of a hospital with ``degree`` neighbours. The
    hospital and its neighbours hold one share each.
    """
    holders = degree + 1
    return min(default_threshold(holders) if given == "auto" else int(given), holders)


def neighbours(ids: Ids, count: int, seed: int, round: int) -> dict[int, Ids]:
    """Return, for each of the hospitals ``ids [m]``, the neighbours with which it shares masks, in ascending order.
    ``count`` is the number of neighbours of each hospital; it is even, or at least ``m - 1``.

    If ``count`` is at least ``m - 1``, all other hospitals are neighbours. Otherwise hospitals are on a ring, in a
    random order that differs between rounds, and neighbours are the next ``count / 2`` hospitals on either side.
    """
    m = len(ids)
    if count >= m - 1:
        return {int(i): ids[ids != i] for i in ids}
    if count % 2 or count < 2:
        raise ValueError(f"neighbours: {count} is not an even number of at least 2")
    ring = ids[stream(seed, "secagg", round).permutation(m)]
    steps = np.concatenate([np.arange(1, count // 2 + 1), -np.arange(1, count // 2 + 1)])
    return {int(ring[at]): np.sort(ring[(at + steps) % m]) for at in range(m)}


def default_threshold(holders: int) -> int:
    """Return how many secret shares are needed to reconstruct a secret: the smallest number above two thirds of
    ``holders``, the number of hospitals that hold one share each.
    """
    return 2 * holders // 3 + 1
