"""The hospitals trained in one call of the batched kernels, and the batches of each step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysim.training.base import Task
from raysim.training.kernels.descent import rows_per_batch

CELLS = 2**27  # limit of cells (hospitals * rows of a batch * features) gathered in one step: half a GB in float32
SCHEDULED = 2**25  # limit of rows (steps * hospitals * rows of a batch) in one schedule: 128 MiB


@dataclass(frozen=True)
class BatchSchedule:
    """The rows of each step's batches, for hospitals in descending order of their numbers of steps.

    ``rows [T, H, B]`` are indices into the concatenated rows of all ``H`` hospitals, for ``T`` steps and batches of up
    to ``B`` rows. The batch of hospital ``h`` in step ``t`` is the first ``counts[t, h]`` of the ``B`` indices
    ``rows[t, h]``; the others are padding. ``active`` has, for each step, the number of hospitals that still have a
    batch. If every batch has all rows of its hospital, all steps use the same batches, and ``T`` is 1.
    """

    rows: NDArray[np.int32]
    counts: NDArray[np.int32]
    active: list[int]


def padded(batch_size: int, n: int) -> int:
    """Return the number of rows to which the batches of a hospital with ``n`` rows are padded.

    The result is 1, 2, 3, 4, 6, 8, 12, 16 and so on, but at most ``batch_size``, if this is not 0. It does not depend
    on other hospitals. The shapes of the hospital's matrix products are therefore the same in any cohort.
    """
    width = rows_per_batch(batch_size, n)
    grain = 1 << max(0, width.bit_length() - 2)
    wide = -(-width // grain) * grain
    return min(wide, batch_size) if batch_size else wide


def steps_of(task: Task, batch_size: int) -> int:
    """Return the number of steps of a local update."""
    n = len(task.y)
    return task.epochs * -(-n // rows_per_batch(batch_size, n))


def schedule(tasks: Sequence[Task], batch_size: int) -> BatchSchedule:
    """Return the batches of ``tasks``. The :func:`padded` size of batches must be the same for all tasks.

    The tasks must be sorted by descending number of steps.
    """
    sizes = [len(task.y) for task in tasks]
    widths = [rows_per_batch(batch_size, n) for n in sizes]
    steps = [steps_of(task, batch_size) for task in tasks]
    distinct = steps[0] if batch_size else 1
    rows = np.zeros((distinct, len(tasks), padded(batch_size, sizes[0])), np.int32)
    counts = np.ones((distinct, len(tasks)), np.int32)
    first = 0
    for h, (task, n, width) in enumerate(zip(tasks, sizes, widths, strict=True)):
        count = -(-n // width)
        rows[:, h] = first
        for epoch in range(task.epochs if batch_size else 1):
            order = np.arange(n) if width == n else task.batches(epoch).permutation(n)
            filled = np.full(count * width, first)
            filled[:n] += order
            part = slice(epoch * count, (epoch + 1) * count)
            rows[part, h, :width] = filled.reshape(count, width)
            counts[part, h] = width
            counts[part.stop - 1, h] = n - (count - 1) * width
        first += n
    return BatchSchedule(rows, counts, [sum(s > t for s in steps) for t in range(steps[0])])


def groups(tasks: Sequence[Task], batch_size: int) -> Iterator[list[int]]:
    """Yield groups of tasks that can be trained in one call, as indices of ``tasks``.

    Tasks without rows or epochs are left out. In a group, tasks with the most steps come first.
    """
    shapes = {
        h: (padded(batch_size, len(task.y)), steps_of(task, batch_size))
        for h, task in enumerate(tasks)
        if len(task.y) and task.epochs
    }
    group: list[int] = []
    for h in sorted(shapes, key=shapes.__getitem__, reverse=True):
        width, steps = shapes[group[0] if group else h]
        rows = (len(group) + 1) * width
        scheduled = rows * (steps if batch_size else 1)
        if group and (shapes[h][0] < width or rows * tasks[h].X.shape[1] > CELLS or scheduled > SCHEDULED):
            yield group
            group = []
        group.append(h)
    if group:
        yield group
