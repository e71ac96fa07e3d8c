"""Training of a table of which a hospital's rows look up a part, such as an embedding, without the rest of it.

An entry that no batch of a visit looks up has the gradient zero at every step, and so stays what it is under every
optimiser here (Adam too: its moments begin at zero with each visit), unless something else pulls it. A vocabulary of
ten thousand words, of which a hospital uses one thousand, costs what one thousand cost, and the result is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from raysim.training.base import Layout, Optimizer, Task


@dataclass(frozen=True, eq=False)
class Condensed:
    """A task on the entries that its rows look up: ``task`` in the terms of ``layout``, whose parameters lie at
    ``index [P']`` of the whole vector."""

    task: Task
    layout: Layout
    index: NDArray[np.int64]


def condense(task: Task, layout: Layout, table: str, optimizer: Optimizer) -> Condensed | None:
    """``task`` on a smaller ``table [V, D]``, the tensor of the layout whose entries 0 to V - 1 its features number.

    Entry 0 stays the first, for it may be padding. None where a feature is no entry's number, where weight decay, a
    pull, a linear term or the optimiser's earlier steps move entries that are not looked up, or where the task has a
    contrastive term, which needs whole models.
    """
    moved = optimizer.weight_decay or (task.moments is not None and optimizer.name != "sgd")
    if task.contrast is not None or moved:
        return None
    place = layout.names.index(table)
    V, D = layout.shapes[place]
    if not (task.X.min(initial=0) >= 0 and task.X.max(initial=0) < V):  # NaN is neither
        return None
    numbers = task.X.astype(np.int64)
    if (numbers != task.X).any():
        return None
    used = np.zeros(V, np.bool_)
    used[0] = used[numbers] = True
    entries = np.flatnonzero(used)
    rank = np.cumsum(used, dtype=np.int64) - 1
    part, size = layout.slices[table], layout.size
    cells = part.start + (entries[:, None] * D + np.arange(D)).ravel()
    index = np.concatenate([np.arange(part.start), cells, np.arange(part.stop, size)])
    pulls = [(weight, towards) for weight, towards in task.pulls if weight != 0]
    if pulls or task.linear is not None:
        others = np.ones(size, np.bool_)
        others[index] = False
        if any((towards[others] != task.start[others]).any() for _, towards in pulls):
            return None
        if task.linear is not None and task.linear[others].any():
            return None
    shapes = (*layout.shapes[:place], (len(entries), D), *layout.shapes[place + 1 :])
    smaller = replace(
        task,
        X=rank[numbers].astype(task.X.dtype),
        start=task.start[index],
        pulls=[(weight, towards[index]) for weight, towards in pulls],
        linear=None if task.linear is None else task.linear[index],
        frozen=None if task.frozen is None else task.frozen[index],
    )
    return Condensed(smaller, Layout(layout.names, shapes), index)
