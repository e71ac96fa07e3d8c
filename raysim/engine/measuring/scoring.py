"""The outputs of models for the rows of one process's hospitals. The outputs of many hospitals are computed in one call
if this changes no bit of the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core import mapped
from raysim.data.federation import PARTS, Federation
from raysim.metrics.segments import ranges
from raysim.strategies.base import Ids

CACHED_BYTES = 64 * 2**20
"""The features of a part are cached in one array if they have at most this many bytes."""

CHUNK_BYTES = 8 * 2**20
"""The number of bytes of features that are copied at a time if they are not cached."""

MAPPED_BYTES = 2**30
"""If a federation's memory-mapped features have more bytes than this, their memory is released after rows have been
copied."""


@dataclass(frozen=True, eq=False)
class PartRows:
    """The rows of ``h`` hospitals in one part (train, validation or test), concatenated in the hospitals' order."""

    federation: Federation
    index: NDArray[np.int64]
    """The position of each of the ``n`` rows in the federation, ``[n]``."""
    offsets: NDArray[np.int64]
    """The position in ``index`` at which each hospital's rows begin, followed by ``n``, ``[h + 1]``."""
    y: NDArray[Any]
    """The labels of the rows, ``[n]``."""
    features: NDArray[Any] | None
    """The features of the rows, ``[n, F]``; None if larger than ``CACHED_BYTES``."""

    @staticmethod
    def of(federation: Federation, hospitals: Sequence[int], part: str) -> PartRows:
        """Return the rows of ``part`` at ``hospitals``, in the order of ``hospitals``."""
        k, ids = PARTS.index(part), np.asarray(hospitals, dtype=np.int64)
        starts = federation.bounds[ids, k]
        lengths = federation.bounds[ids, k + 1] - starts
        offsets, index = np.concatenate([[0], np.cumsum(lengths)]), ranges(starts, lengths)
        small = len(index) * federation.X.shape[1] * federation.X.itemsize <= CACHED_BYTES
        return PartRows(federation, index, offsets, federation.y[index], federation.X[index] if small else None)

    @cached_property
    def patients(self) -> NDArray[np.int64]:
        """The number that identifies each row's patient, ``[n]``. The number does not depend on the run's seed."""
        return self.federation.identities[self.index]

    def blocks(self, low: int, high: int) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Yield the rows ``low`` to ``high - 1`` in blocks. Each block is a pair: its slice of the concatenated rows,
        and the features of these rows.
        """
        if self.features is not None:
            yield slice(low, high), self.features[low:high]
            return
        step = max(1, CHUNK_BYTES // max(1, self.federation.X.shape[1] * self.federation.X.itemsize))
        for start in range(low, high, step):
            piece = slice(start, min(start + step, high))
            yield piece, self.federation.X[self.index[piece]]
            if self.federation.X.nbytes > MAPPED_BYTES:
                mapped.release(self.federation.X)


def joined(
    logits: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]], models: NDArray[Any], served: Ids, rows: PartRows
) -> NDArray[Any]:
    """Return the outputs ``[n]`` of each hospital's model for its rows. ``served [h]`` is the index of each hospital's
    model in ``models [M, P]``.

    ``logits`` is a model's ``logits_of_many`` (:class:`raysim.training.base.Model`). Outputs are the same, bit for bit,
    however hospitals are distributed over processes.
    """
    changes = np.flatnonzero(np.diff(served)) + 1
    outputs = np.empty(len(rows.index), models.dtype)
    cuts = [0, *changes.tolist(), len(served)]
    for first, last in pairwise(cuts):
        theta = models[int(served[first])]
        for piece, X in rows.blocks(int(rows.offsets[first]), int(rows.offsets[last])):
            outputs[piece] = logits(theta, X)
    return outputs
