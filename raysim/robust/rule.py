"""What a robust rule is given and what it gives.

Shapes: ``m`` updates of ``P`` scalars each, of which ``f`` are assumed to be wrong. Everything is float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Aggregate:
    """What a rule makes of ``m`` updates."""

    update: Floats
    """The update that stands for all, ``[P]``."""
    admitted: Floats | None = None
    """The share of each update in it, ``[m]``; None for rules that choose anew for each coordinate."""
    selects: bool = False
    """Whether an update with a share of 0 was rejected by the rule, rather than weighed."""


Rule = Callable[[Floats, int], Aggregate]
"""``rule(updates [m, P], f)``."""


def squared_distances(updates: Floats) -> Floats:
    """The squared distances between updates, ``[m, m]``, from one product of matrices.

    Updates are taken from their median first: of nearly equal vectors far from the origin the product would keep no
    digit of the difference.
    """
    centred = updates - np.median(updates, axis=0)
    squares = np.einsum("ip,ip->i", centred, centred)
    distances: Floats = np.maximum(squares[:, None] + squares[None, :] - 2.0 * (centred @ centred.T), 0.0)
    np.fill_diagonal(distances, 0.0)
    return distances


def uniform(updates: Floats) -> Floats:
    """The mean, ``[P]``; equal updates are returned to the last bit."""
    first = updates[0]
    mean: Floats = first + (updates - first).mean(axis=0)
    return mean
