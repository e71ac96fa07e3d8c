"""The arguments and the result of a robust rule, and distances between updates.

Shapes: ``m`` updates of ``P`` scalars each; ``f`` of the updates are assumed to be wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from raysim.core.arrays import Floats


@dataclass(frozen=True, eq=False)
class Aggregate:
    """The result of a robust rule for ``m`` updates."""

    update: Floats
    """The aggregated update, ``[P]``."""
    admitted: Floats | None = None
    """The weight of each update in the aggregate, ``[m]``. For Bulyan, this is the mean of the weights in all
    coordinates; for FLTrust, the weight of the scaled update. None for ``median`` and ``trimmed_mean``."""
    selects: bool = False
    """Whether a weight of 0 in ``admitted`` means that the rule rejected the update."""


PIECE = 2**17
"""The approximate number of scalars of updates that are processed together, so that they fit into the second-level
cache."""

Rule = Callable[[Floats, int], Aggregate]
"""The type of a robust rule ``rule(updates, f)``. ``updates [m, P]`` has a row for each update, and ``f`` of these
updates are assumed to be wrong."""


def by_columns(of: Callable[[Floats], Floats], updates: Floats) -> Floats:
    """Apply the function ``of`` to blocks of columns of ``updates``, and return the results ``[P]``. The function must
    treat each column independently.
    """
    columns = updates.shape[1]
    # A part has at least two columns, because numpy adds a single column in another order.
    parts = np.array_split(updates, max(1, min(updates.size // PIECE, columns // 2)), axis=1)
    return np.concatenate([of(part) for part in parts])


def distances_to(point: Floats, updates: Floats) -> Floats:
    """Return the distances ``[m]`` of the updates from ``point [P]``."""
    parts = np.array_split(updates, max(1, min(updates.size // PIECE, len(updates))))
    return np.concatenate([np.linalg.norm(part - point, axis=1) for part in parts])


def squared_distances(updates: Floats) -> Floats:
    """Return an array ``[m, m]`` with the squared distances between all pairs of updates.

    The median is subtracted from the updates first. Otherwise the matrix product would lose all digits of the
    differences between nearly equal updates far from the origin.
    """
    centred = updates - np.median(updates, axis=0)
    squares = np.einsum("ip,ip->i", centred, centred)
    distances: Floats = np.maximum(squares[:, None] + squares[None, :] - 2.0 * (centred @ centred.T), 0.0)
    np.fill_diagonal(distances, 0.0)
    return distances


def uniform(updates: Floats) -> Floats:
    """Return the unweighted mean of the updates, ``[P]``. The mean of equal updates equals them to the last bit."""
    return by_columns(lambda part: part[0] + (part - part[0]).mean(axis=0), updates)
