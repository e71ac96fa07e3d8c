"""The batches of a local update, as slices of rows that are gathered for many steps at once.

The number of rows gathered at once is at most the hospital's number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raysim.training.base import Optimizer, Task
from raysim.training.kernels.descent import rows_per_batch
from raysim.training.private import PrivateSteps


class Gathered(NamedTuple):
    """The batches of consecutive steps."""

    rows: NDArray[np.int64]
    """The indices of the rows of these batches, concatenated, ``[m]``."""
    cuts: Sequence[tuple[int, int]]
    """The start and the end of each batch in ``rows``. Several steps may use the same part of ``rows``."""
    step: int
    """The number of the first of these steps, counted from 0."""
    whole: bool = False
    """Whether every step of the local update uses all of the hospital's rows, in their original order."""


def batches(task: Task, optimizer: Optimizer) -> Iterator[Gathered]:
    """Yield the batches of all steps of a local update."""
    if task.private is not None:
        yield from of_private(task.private, len(task.y))
        return
    n = len(task.y)
    size = rows_per_batch(optimizer.batch_size, n)
    cuts = regular(n, size)
    if size == n:
        yield Gathered(np.arange(n), cuts * int(task.epochs), 0, whole=True)
        return
    for epoch in range(task.epochs):
        order = np.arange(n)
        task.batches(epoch).shuffle(order)  # same order as permutation(n), but faster
        yield Gathered(order, cuts, epoch * len(cuts))


@lru_cache(maxsize=1024)
def regular(n: int, size: int) -> tuple[tuple[int, int], ...]:
    """Return the start and end of each batch of ``size`` rows among ``n`` rows; the last batch may have fewer rows."""
    return tuple((low, min(low + size, n)) for low in range(0, n, size))


def of_private(private: PrivateSteps, n: int) -> Iterator[Gathered]:
    """Yield the batches of the steps of DP-SGD at a hospital with ``n`` rows."""
    waiting: list[NDArray[np.int64]] = []
    cuts: list[tuple[int, int]] = []
    first = filled = 0
    for step in range(private.steps):
        rows = private.batch(step)
        end = filled + len(rows)
        if end > n:
            yield Gathered(np.concatenate(waiting), cuts, first)
            waiting, cuts, first, filled, end = [], [], step, 0, len(rows)
        waiting.append(rows)
        cuts.append((filled, end))
        filled = end
    if cuts:
        yield Gathered(np.concatenate(waiting), cuts, first)
