"""Adds deltas that are sent unchanged to their sums: of small models many at once, and large models in pieces.

A model of a few hundred thousand scalars no longer fits a core's cache together with its sum. Therefore all hospitals'
deltas of one piece are added up before the next piece.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.exact import ExactSum
from raysim.engine.client.initial_model import Parameters
from raysim.strategies.base import Floats

TOGETHER = 2**15
"""Number of scalars of deltas added up at a time, so that their sums and operands fit the cache."""


def add_deltas(
    sums: ExactSum,
    groups: NDArray[np.int64],
    weights: Floats,
    starts: Sequence[Parameters],
    trained: NDArray[Any],
    limit: float,
    check: Callable[[], None],
) -> None:
    """Add ``weights[k] * (trained[k] - starts[k])`` to the sum ``groups[k]`` for each ``k``.

    The result has the same bits as adding one delta after the other. ``check()`` is called once if a delta's entries
    may not be below ``limit``, and raises if they are not. Raises ``ValueError`` for vectors of other lengths than the
    sums.
    """
    size = sums.units.shape[1]
    if trained.shape != (len(starts), size) or any(start.shape != (size,) for start in starts):
        raise ValueError(f"sums of {size} numbers, and {len(starts)} models {trained.shape}")
    places = [id(start) for start in starts]  # one for all that start from one row of the models
    most = _most(trained) + max(_most(start) for start in dict(zip(places, starts, strict=True)).values())
    if not most < limit:  # False for NaN
        check()
        most = np.inf
    together = max(1, TOGETHER // size)
    for low in range(0, size, TOGETHER):
        columns = slice(low, low + TOGETHER)
        for first in range(0, len(starts), together):
            part = slice(first, first + together)
            deltas = trained[part, columns].astype(np.float64)
            if len(set(places[part])) == 1:
                deltas -= starts[first][columns]
            else:
                deltas -= np.stack([start[columns] for start in starts[part]])
            sums.add_rows(groups[part], weights[part], deltas, most, columns)


def _most(values: NDArray[Any]) -> float:
    """Return the largest magnitude among ``values``; NaN if one of them is NaN."""
    return max(float(values.max(initial=0)), -float(values.min(initial=0)))
