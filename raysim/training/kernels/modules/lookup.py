"""Training of a table, such as an embedding, by only the entries that a hospital's rows look up.

An entry that no batch of a local update looks up has gradient zero at every step. It does not change under any
optimiser here, unless another term moves it (Adam too: its moments begin at zero with each local update). If a hospital
uses one thousand words of a vocabulary of ten thousand, training costs as much as for one thousand, with the same
result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.training.base import Layout, Optimizer, Task, Vector


@dataclass(frozen=True, eq=False)
class Entries:
    """The entries of a table ``[V, D]`` that are looked up.

    The table is part of a parameter vector ``[P]``. In a condensed vector ``[P']`` only these entries replace it.
    """

    table: slice
    """The slice of the table in the vector."""
    width: int
    """The number of scalars of an entry, ``D``."""
    used: NDArray[np.int64]
    """The entries that are looked up, ascending."""

    def take(self, vector: Vector) -> Vector:
        """Return the condensed vector ``[P']`` of ``vector [P]``."""
        begin, after = self.table.start, self.table.start + len(self.used) * self.width
        part = np.empty(after + len(vector) - self.table.stop, vector.dtype)
        part[:begin], part[after:] = vector[:begin], vector[self.table.stop :]
        # any other mode would copy once more
        np.take(self._rows(vector), self.used, axis=0, out=self._rows(part, slice(begin, after)), mode="clip")
        return part

    def put(self, part: Vector, into: Vector) -> None:
        """Write ``part [P']`` back to its places in ``into [P]``."""
        begin, after = self.table.start, self.table.start + len(self.used) * self.width
        into[:begin], into[self.table.stop :] = part[:begin], part[after:]
        self._rows(into)[self.used] = self._rows(part, slice(begin, after))

    def others(self, vector: Vector) -> Vector:
        """Return the entries ``[., D]`` of the table in ``vector [P]`` that are not looked up."""
        unused: Vector = np.delete(self._rows(vector), self.used, axis=0)
        return unused

    def _rows(self, vector: Vector, table: slice | None = None) -> Vector:
        return vector[self.table if table is None else table].reshape(-1, self.width)


@dataclass(frozen=True, eq=False)
class Condensed:
    """A task reduced to the entries that its rows look up: vectors of ``task`` are ``[P']``, cut by ``layout``."""

    task: Task
    layout: Layout
    entries: Entries


def check_entries(ids: NDArray[Any], entries: int) -> None:
    """Raise ``ValueError`` if one of ``ids [n, L]`` is not an index into a table with ``entries`` entries."""
    wrong = ids[~((ids >= 0) & (ids < entries))]  # NaN is neither
    if wrong.size:
        raise ValueError(f"a feature is {wrong[0]:g}, not an index into a table of {entries} entries; make them agree")


def condense(task: Task, layout: Layout, table: str, optimizer: Optimizer) -> Condensed | None:
    """Return ``task`` reduced to the entries of a table that its rows look up; None if the result would differ.

    ``table`` is the name of a tensor ``[V, D]`` of the layout; the task's features are indices 0 to V - 1 into it.
    Entry 0 stays the first, for it may be padding. The result is None in three cases:

    - a feature is not such an index;
    - weight decay, a proximal term, a linear term or the optimiser's earlier steps move entries that are not looked up;
    - the task has a contrastive term, which needs whole models.
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
    looked_up = np.zeros(V, np.bool_)
    looked_up[0] = looked_up[numbers] = True
    used = np.flatnonzero(looked_up)
    rank = np.empty(V, task.X.dtype)
    rank[used] = np.arange(len(used))
    entries = Entries(layout.slices[table], D, used)
    proximal = [(weight, towards) for weight, towards in task.proximal if weight != 0]
    if any((entries.others(towards) != entries.others(task.start)).any() for _, towards in proximal):
        return None
    if task.linear is not None and entries.others(task.linear).any():
        return None
    shapes = (*layout.shapes[:place], (len(used), D), *layout.shapes[place + 1 :])
    smaller = replace(
        task,
        X=rank[numbers],
        start=entries.take(task.start),
        proximal=[(weight, entries.take(towards)) for weight, towards in proximal],
        linear=None if task.linear is None else entries.take(task.linear),
        frozen=None if task.frozen is None else entries.take(task.frozen),
    )
    return Condensed(smaller, Layout(layout.names, shapes), entries)
