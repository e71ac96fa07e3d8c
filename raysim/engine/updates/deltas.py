"""Adds deltas that are sent unchanged to their sums: of small models many at once, and large ones in pieces.

A model of a few hundred thousand scalars no longer fits a core's cache beside its delta in float64 and its sum. All
passes over a piece of it therefore come before those over the next piece.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raysim.core.exact import ExactSum
from raysim.engine.visits.starts import Parameters
from raysim.strategies.base import Floats

TOGETHER = 2**15
"""Scalars of deltas that are added up at a time, so that they, their sums and what they come from fit the cache."""

LARGE = 2**14
"""Scalars of a model from which on it is added up in pieces."""


class _Deltas(NamedTuple):
    """The arguments of :func:`add_deltas` that say what is added, and where."""

    groups: NDArray[np.int64]
    weights: Floats
    starts: Sequence[Parameters]
    trained: NDArray[Any]


def add_deltas(
    sums: ExactSum,
    groups: NDArray[np.int64],
    weights: Floats,
    starts: Sequence[Parameters],
    trained: NDArray[Any],
    limit: float,
    check: Callable[[], None],
) -> None:
    """Add ``weights[k] * (trained[k] - starts[k])`` to the sum ``groups[k]`` for each ``k``, with the bits of adding
    one after the other.

    ``check()`` is called once where a delta's entries may not be below ``limit``, and raises where they are not.
    """
    add = _add_small if trained.shape[1] < LARGE else _add_large
    add(sums, _Deltas(groups, weights, starts, trained), limit, check)


def _add_small(sums: ExactSum, of: _Deltas, limit: float, check: Callable[[], None]) -> None:
    groups, weights, starts, trained = of
    places = [id(start) for start in starts]  # one for all that start from one row of the bank
    most = _most(trained) + max(_most(start) for start in dict(zip(places, starts, strict=True)).values())
    if not most < limit:  # False for NaN
        check()
        most = np.inf
    together = max(1, TOGETHER // trained.shape[1])
    for first in range(0, len(starts), together):
        part = slice(first, first + together)
        deltas = trained[part].astype(np.float64)
        deltas -= starts[first] if len(set(places[part])) == 1 else np.stack(starts[part])
        sums.add_rows(groups[part], weights[part], deltas, most)


@np.errstate(over="ignore")  # of lengths, which are checked
def _add_large(sums: ExactSum, of: _Deltas, limit: float, check: Callable[[], None]) -> None:
    groups, weights, starts, trained = of
    most = {place: _length(start) for place, start in {id(start): start for start in starts}.items()}
    delta, before = np.empty(TOGETHER), np.empty(TOGETHER)
    checked = False

    def deltas(columns: slice) -> Iterator[tuple[Floats, float]]:
        nonlocal checked
        held: Parameters | None = None
        for start, end in zip(starts, trained[:, columns], strict=True):
            piece, begun = delta[: len(end)], before[: len(end)]
            if start is not held:
                begun[...], held = start[columns], start
            bound = most[id(start)] + _length(end)
            if not bound < limit:  # False for NaN
                if not checked:
                    check()
                checked, bound = True, np.inf
            piece[...] = end
            np.subtract(piece, begun, out=piece)
            yield piece, bound

    into, times = groups.tolist(), weights.tolist()
    for low in range(0, trained.shape[1], TOGETHER):
        columns = slice(low, low + TOGETHER)
        sums.add_pieces(into, times, deltas(columns), columns)


def _most(values: NDArray[Any]) -> float:
    """The largest magnitude among ``values``; NaN where one is."""
    return max(float(values.max(initial=0)), -float(values.min(initial=0)))


def _length(vector: NDArray[Any]) -> float:
    """A little more than the Euclidean length of a vector, so that no entry is above it; not finite where one is not.

    It takes one pass, where the largest and the smallest entry take two.
    """
    return math.sqrt(float(np.dot(vector, vector))) * (1 + 2**-20) + 1e-18  # squares of the least numbers are 0
