"""Choose the rows of a table that are checked before training, and read its columns at these rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.data.raw_columns import RawColumns

Ints = NDArray[np.int64]

_MOST = 250_000  # largest number of rows that are checked
_OF_HOSPITAL = 5_000  # largest number of rows of a hospital that are checked in a larger table
_BLOCK = 16  # columns copied at once


def in_order(home: Ints) -> Ints:
    """Return the rows to check, in order of their hospitals ``home [n]``: all rows, or evenly spaced rows of a large
    table."""
    order: Ints = np.argsort(home, kind="stable")
    return order[_sample(np.bincount(home))] if len(order) > _MOST else order


def columns_at(table: RawColumns, rows: Ints) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield each column at ``rows``: numbers as floats (NaN: missing), categories as int64 codes (-1: missing)."""
    for at in range(0, len(table.numeric), _BLOCK):
        block = table.values[:, at : at + _BLOCK][rows].T
        for name, values in zip(table.numeric[at : at + _BLOCK], block, strict=True):
            yield name, np.ascontiguousarray(values)
    for name, codes in zip(table.categorical, table.codes, strict=True):
        yield name, codes[rows]


def _sample(sizes: Ints) -> Ints:
    """Choose which rows to check, given in order of hospitals of ``sizes [H]`` rows: evenly spaced rows of evenly
    spaced hospitals."""
    stride = -(-sizes // _OF_HOSPITAL)
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    kept = np.flatnonzero(within % np.repeat(np.maximum(stride, 1), sizes) == 0)
    step = -(-len(kept) // _MOST)
    home = np.repeat(np.arange(len(sizes)), sizes)[kept]
    sampled: Ints = kept[home % step == 0]
    return sampled
