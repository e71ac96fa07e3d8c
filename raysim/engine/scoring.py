"""What models say of the rows of one process's hospitals, many hospitals in a call where that changes no bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core import mapped
from raysim.data.federation import PARTS, Federation
from raysim.metrics.segments import ranges
from raysim.strategies.base import Ids
from raysim.training.base import Model

KEPT_BYTES = 64 * 2**20
"""Features of one part that a process keeps side by side; those of larger parts are gathered for each call."""

CHUNK_BYTES = 8 * 2**20
"""Features gathered in one call, where they are not kept."""


MAPPED_BYTES = 2**30
"""Features of a federation whose rows do not stay in a process that has gathered them."""


@dataclass(frozen=True, eq=False)
class PartRows:
    """One part (train, validation or test) of the rows of ``h`` hospitals, back to back in their order."""

    federation: Federation
    """Whose rows these are."""
    index: NDArray[np.int64]
    """Where each of the ``n`` rows stands in the federation, ``[n]``."""
    offsets: NDArray[np.int64]
    """Where each hospital's rows begin among these, and the end, ``[h + 1]``."""
    y: NDArray[Any]
    """Their labels, ``[n]``."""
    kept: NDArray[Any] | None
    """Their features ``[n, F]``, or None where these are more than ``KEPT_BYTES``."""

    @staticmethod
    def of(federation: Federation, hospitals: Sequence[int], part: str) -> PartRows:
        """The ``part`` of ``hospitals``, in their order."""
        k, ids = PARTS.index(part), np.asarray(hospitals, dtype=np.int64)
        starts = federation.bounds[ids, k]
        lengths = federation.bounds[ids, k + 1] - starts
        offsets, index = np.concatenate([[0], np.cumsum(lengths)]), ranges(starts, lengths)
        small = len(index) * federation.X.shape[1] * federation.X.itemsize <= KEPT_BYTES
        return PartRows(federation, index, offsets, federation.y[index], federation.X[index] if small else None)

    def blocks(self, low: int, high: int) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Rows ``low`` to ``high`` in pieces: where a piece stands among these rows, and its features."""
        if self.kept is not None:
            yield slice(low, high), self.kept[low:high]
            return
        step = max(1, CHUNK_BYTES // max(1, self.federation.X.shape[1] * self.federation.X.itemsize))
        for start in range(low, high, step):
            piece = slice(start, min(start + step, high))
            yield piece, self.federation.X[self.index[piece]]
            if self.federation.X.nbytes > MAPPED_BYTES:
                mapped.release(self.federation.X)


def joined(model: Model, bank: NDArray[Any], served: Ids, rows: PartRows) -> NDArray[Any]:
    """What the models at bank rows ``served [h]`` say of each hospital's rows ``[n]``.

    Neighbours that the same model serves are one product. Only for a model whose output for a row does not depend on
    the other rows of the call (``row_by_row``): so the bits are those of one hospital at a time, on any placement.
    """
    changes = np.flatnonzero(np.diff(served)) + 1
    cuts = [0, *changes.tolist(), len(served)]
    outputs = np.empty(len(rows.index), bank.dtype)
    for first, last in pairwise(cuts):
        theta = bank[int(served[first])]
        for piece, X in rows.blocks(int(rows.offsets[first]), int(rows.offsets[last])):
            outputs[piece] = model.logits(theta, X)
    return outputs
