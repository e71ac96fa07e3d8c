"""Outputs of models for the rows of one process's hospitals, many hospitals in a call if that changes no bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core import mapped
from raysim.data.federation import PARTS, Federation
from raysim.metrics.segments import ranges
from raysim.strategies.base import Ids

KEPT_BYTES = 64 * 2**20
"""Largest size in bytes of a part's features cached in one array; larger parts are gathered for each call."""

CHUNK_BYTES = 8 * 2**20
"""Number of bytes of features gathered at a time if they are not cached."""

ARRANGED_BYTES = 16 * 2**20
"""Largest size in bytes of a part's features cached a second time, ordered by model."""

MAPPED_BYTES = 2**30
"""Size in bytes of a federation's features above which gathered rows are released from memory again."""


@dataclass(eq=False)
class Arranged:
    """Features of a part's rows ordered by the models in use: one call for each model, not for each hospital.

    They are copied only when the same hospitals use the same models a second time. For a strategy that chooses models
    in every round, the copies would cost more than they save.
    """

    served: Ids | None = None
    """The model row of each hospital ``[h]`` at the last call."""
    parts: list[tuple[int, NDArray[np.int64], NDArray[Any]]] = field(default_factory=list)
    """For each model: its model row, the positions of its rows in the part ``[m]``, and their features ``[m, F]``."""

    def again(
        self, served: Ids, offsets: NDArray[np.int64], kept: NDArray[Any]
    ) -> list[tuple[int, NDArray[np.int64], NDArray[Any]]]:
        """Return the ``parts`` for model rows ``served [h]``; empty at the first call with these rows.

        ``kept [n, F]`` are the features in the order of hospitals, whose rows begin at ``offsets [h + 1]``.
        """
        if self.served is None or not np.array_equal(self.served, served):
            self.served, self.parts = served.copy(), []
        elif not self.parts:
            for row in np.unique(served).tolist():
                theirs = np.flatnonzero(served == row)
                index = ranges(offsets[theirs], offsets[theirs + 1] - offsets[theirs])
                self.parts.append((row, index, kept[index]))
        return self.parts


@dataclass(frozen=True, eq=False)
class PartRows:
    """One part (train, validation or test) of the rows of ``h`` hospitals, back to back in their order."""

    federation: Federation
    """The federation of these rows."""
    index: NDArray[np.int64]
    """The position of each of the ``n`` rows in the federation, ``[n]``."""
    offsets: NDArray[np.int64]
    """Where each hospital's rows begin in this array, and the end, ``[h + 1]``."""
    y: NDArray[Any]
    """The labels of the rows, ``[n]``."""
    kept: NDArray[Any] | None
    """The features of the rows ``[n, F]``, or None if they are larger than ``KEPT_BYTES``."""
    arranged: Arranged = field(default_factory=Arranged)
    """The same rows ordered by model, for models used by hospitals that are not neighbours."""

    @staticmethod
    def of(federation: Federation, hospitals: Sequence[int], part: str) -> PartRows:
        """Return the ``part`` of ``hospitals``, in their order."""
        k, ids = PARTS.index(part), np.asarray(hospitals, dtype=np.int64)
        starts = federation.bounds[ids, k]
        lengths = federation.bounds[ids, k + 1] - starts
        offsets, index = np.concatenate([[0], np.cumsum(lengths)]), ranges(starts, lengths)
        small = len(index) * federation.X.shape[1] * federation.X.itemsize <= KEPT_BYTES
        return PartRows(federation, index, offsets, federation.y[index], federation.X[index] if small else None)

    @cached_property
    def patients(self) -> NDArray[np.int64]:
        """The patient of each row, the same number in every seed, ``[n]``."""
        return self.federation.identities[self.index]

    def blocks(self, low: int, high: int) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Yield rows ``low`` to ``high`` in pieces: the piece's position in this array, and its features."""
        if self.kept is not None:
            yield slice(low, high), self.kept[low:high]
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
    """Return the outputs ``[n]`` for each hospital's rows, of the models at model rows ``served [h]``.

    ``logits`` is a model's ``logits_of_many`` (:class:`raysim.training.base.Model`), so that the bits are the same on
    any placement. Neighbouring hospitals with one model are scored in one call. If the same hospitals use the same
    models again, all hospitals of a model are scored in one call (:class:`Arranged`).
    """
    changes = np.flatnonzero(np.diff(served)) + 1
    outputs = np.empty(len(rows.index), models.dtype)
    kept = rows.kept
    if kept is not None and kept.nbytes <= ARRANGED_BYTES and len(changes) > len(models):
        parts = rows.arranged.again(served, rows.offsets, kept)
        for row, index, X in parts:
            outputs[index] = logits(models[row], X)
        if parts:
            return outputs
    cuts = [0, *changes.tolist(), len(served)]
    for first, last in pairwise(cuts):
        theta = models[int(served[first])]
        for piece, X in rows.blocks(int(rows.offsets[first]), int(rows.offsets[last])):
            outputs[piece] = logits(theta, X)
    return outputs
