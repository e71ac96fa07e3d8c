"""Adds deltas that are sent unchanged to their sums: of small models many at once, and large ones in pieces.

A model of a few hundred thousand scalars no longer fits a core's cache beside its sum. All hospitals' deltas of a piece
of it are therefore added up before those of the next piece, each in one pass of a compiled loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raysim.core.exact import FRACTION_BITS, ExactSum
from raysim.engine.visits.starts import Parameters
from raysim.strategies.base import Floats
from raysim.training.machine_code import function

TOGETHER = 2**15
"""Scalars of deltas that are added up at a time, so that their sums and what they come from fit the cache."""

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
    Raises ``ValueError`` for vectors of other lengths than the sums.
    """
    size = sums.units.shape[1]
    if trained.shape != (len(starts), size) or any(start.shape != (size,) for start in starts):
        raise ValueError(f"sums of {size} numbers, and {len(starts)} models {trained.shape}")
    add = _add_small if size < LARGE else _add_large
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


def _add_large(sums: ExactSum, of: _Deltas, limit: float, check: Callable[[], None]) -> None:
    groups, weights, starts, trained = of
    units, size, dtype = sums.units, trained.shape[1], np.result_type(trained, *starts)
    add = function("sums", "add", "iaarn", dtype)
    begun = {id(start): np.ascontiguousarray(start, dtype) for start in starts}
    ends = [np.ascontiguousarray(end, dtype) for end in trained]
    numbers = np.stack([weights * 2.0**FRACTION_BITS, np.full(len(ends), limit), np.zeros(len(ends))], axis=1)
    at = [
        (units[group].ctypes.data, end.ctypes.data, begun[id(start)].ctypes.data, of_one.ctypes.data)
        for group, end, start, of_one in zip(groups, ends, starts, numbers, strict=True)
    ]
    for low in range(0, size, TOGETHER):
        here, count = low * dtype.itemsize, min(TOGETHER, size - low)
        for into, end, start, of_one in at:
            add(into + low * units.itemsize, end + here, start + here, of_one, count)
    if numbers[:, 2].any():
        check()


def _most(values: NDArray[Any]) -> float:
    """The largest magnitude among ``values``; NaN where one is."""
    return max(float(values.max(initial=0)), -float(values.min(initial=0)))
