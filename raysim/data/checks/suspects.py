"""Findings of the checks of a table, as plain values, and the rows that the checks read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Ints
from raysim.data.raw_columns import RawColumns

Level = Literal["warn", "ask", "list"]
LEVELS: tuple[Level, ...] = ("warn", "ask", "list")


@dataclass(frozen=True)
class Suspect:
    """A possible error in a table.

    Its ``level`` is ``warn`` if the table is almost certainly wrong, ``ask`` if a person should decide, and ``list`` if
    it may well be right.
    """

    feature: str
    """The name of the column in the source; empty for findings about hospitals, patients or the label."""
    level: Level
    text: str
    """The message to the user: what is suspect and, in most messages, what to do."""


@dataclass(frozen=True)
class Leaks:
    """The columns that may reveal the label or contain codes, and a note on what was checked."""

    suspects: tuple[Suspect, ...] = ()
    """At most one finding for each column, the gravest first."""
    note: str = ""
    """What was checked and what could not be checked; empty if nothing was checked."""

    @staticmethod
    def of(tree: Mapping[str, Any]) -> Leaks:
        """Restore suspected leaks from JSON values, which ``dataclasses.asdict`` made."""
        return Leaks(suspects_of(tree.get("suspects", ())), tree.get("note", ""))


def suspects_of(trees: Any) -> tuple[Suspect, ...]:
    """Restore suspected errors from JSON values: a list of mappings with the fields of :class:`Suspect`."""
    return tuple(Suspect(**each) for each in trees)


_MOST = 250_000  # largest number of rows that are checked
_OF_HOSPITAL = 5_000  # largest number of rows of a hospital that are checked in a larger table
_BLOCK = 16  # columns copied at once


def in_order(home: Ints) -> Ints:
    """Return the positions of the rows to check, sorted by hospital: all rows, or a sample of a large table.

    The sample has evenly spaced rows of each hospital. If that is still too many rows, it has only every k-th hospital.
    ``home [n]`` is the hospital of each row.
    """
    order: Ints = np.argsort(home, kind="stable")
    return order[_sample(np.bincount(home))] if len(order) > _MOST else order


def columns_at(table: RawColumns, rows: Ints) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the name of each column and its values in the rows ``rows``: numbers as floats (NaN: missing), categories
    as int64 codes (-1: missing).
    """
    for at in range(0, len(table.numeric), _BLOCK):
        block = table.values[:, at : at + _BLOCK][rows].T
        for name, values in zip(table.numeric[at : at + _BLOCK], block, strict=True):
            yield name, np.ascontiguousarray(values)
    for name, codes in zip(table.categorical, table.codes, strict=True):
        yield name, codes[rows]


def _sample(sizes: Ints) -> Ints:
    stride = -(-sizes // _OF_HOSPITAL)
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    sampled = np.flatnonzero(within % np.repeat(np.maximum(stride, 1), sizes) == 0)
    step = -(-len(sampled) // _MOST)
    home = np.repeat(np.arange(len(sizes)), sizes)[sampled]
    return np.asarray(sampled[home % step == 0])
