"""Merging of the partial results of all processes into one update."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from raysim.core.exact import decode
from raysim.engine.messages.plan import PartialResult
from raysim.engine.messages.update_sums import number_rows
from raysim.strategies.base import Ids, LocalProblem, Update


def summed(partials: Sequence[PartialResult], sums: int, size: int) -> NDArray[np.int64]:
    """Return the totals of the sums that processes sent, ``[sums, size]``, as integers in fixed point.

    Totals of integers do not depend on the order of processes. The first rows are sums of updates; later rows contain
    further numbers that hospitals send.
    """
    total = np.zeros((sums, size), dtype=np.int64)
    for partial in partials:
        if partial.units is not None:
            total += partial.units
    return total


def update_of(units: NDArray[np.int64], partials: Sequence[PartialResult], problem: LocalProblem, ids: Ids) -> Update:
    """Return the merged update of the hospitals ``ids``, which minimised ``problem``. Its entries are sorted by
    hospital id.

    The first rows of ``units`` are the sums of their updates in fixed point; later rows have further numbers.
    """
    trained = [partial for partial in partials if partial.ids is not None]
    homes = [partial.ids for partial in trained if partial.ids is not None]
    # Stable: the entries of one hospital stay in their order.
    order = np.argsort(np.concatenate(homes), kind="stable") if homes else np.empty(0, dtype=np.int64)
    deltas = [partial.deltas for partial in trained if partial.deltas is not None]
    losses = [partial.losses for partial in trained if partial.losses is not None]
    sums, numbers, rows = decode(units), None, number_rows(problem, units.shape[1])
    if rows:
        sums, numbers = sums[:-rows], sums[-rows:].ravel()[: problem.extra_numbers]
    return Update(
        ids=problem.entries(ids),
        sums=sums,
        deltas=np.concatenate(deltas)[order] if deltas else None,
        losses=np.concatenate(losses)[order] if losses else None,
        numbers=numbers,
        problem=problem,
    )


def update_bits(partials: Sequence[PartialResult]) -> NDArray[np.int64] | None:
    """Return the number of bits of each compressed update, sorted by hospital id. None if no update is compressed."""
    parts = [
        (partial.ids, partial.bits) for partial in partials if partial.ids is not None and partial.bits is not None
    ]
    if not parts:
        return None
    order = np.argsort(np.concatenate([ids for ids, _ in parts]), kind="stable")
    return np.concatenate([bits for _, bits in parts])[order]
