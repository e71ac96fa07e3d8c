"""Two models at one hospital: the interval of the difference of their AUROC, without any row leaving the hospital.

The variance of a difference needs how the two AUROC vary together over patients. A hospital draws ``B`` normal numbers
for each of its test rows, once, and keeps them to itself. Of every model it sends the ``B`` sums of its rows'
influences times these numbers. The mean product of two models' sums is DeLong's covariance of their AUROC, up to the
chance of the draws; of the rows, nothing else can be read from them (Johnson and Lindenstrauss 1984).

The interval squares and adds the two models' own intervals, which hold for few events too, with that correlation (Zou
2008). Where a class has fewer than two rows the correlation is taken for 0, which makes the interval too wide rather
than too narrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.core.streams import Streams
from raysim.statistics.discrimination.auroc import Placements
from raysim.statistics.intervals import Interval

Floats = NDArray[np.float64]

SUMS = 100
"""Sums that a hospital sends of each model: the correlation is then off by at most .1, and by .01 where it is .9."""

ROWS = 8192
"""Rows whose numbers are drawn at a time."""

KEPT_BYTES = 16 * 2**20
"""Numbers that a process keeps: those of one seed at its hospitals, which are the same for every model."""


def sketches(placed: Placements, seed: int, hospitals: ArrayLike) -> NDArray[np.float32]:
    """What each hospital sends of one model, ``[H, SUMS]``; NaN where its AUROC, or the variance of it, is undefined.

    ``placed`` is of the first model at ``hospitals [H]`` (their ids), whose numbers are the same for all models that
    are measured on the same rows in a run with this ``seed``.
    """
    ids = np.asarray(hospitals, dtype=np.int64)
    sums, lengths = np.full((len(ids), SUMS), np.nan, dtype=np.float32), np.diff(placed.offsets)
    everybody = tuple(zip(ids.tolist(), lengths.tolist(), strict=True))
    few = int(lengths.sum()) * SUMS * 8 <= KEPT_BYTES
    kept = _kept(seed, everybody) if few else None
    streams = Streams(seed, "sketches")
    for i, (m, n) in enumerate(zip(placed.events.tolist(), placed.non_events.tolist(), strict=True)):
        if min(m, n) < 2 or np.isnan(placed.auroc[0, i]):
            continue
        rows = slice(int(placed.offsets[i]), int(placed.offsets[i + 1]))
        corrected = np.where(placed.event[rows], np.sqrt(m / (m - 1)), np.sqrt(n / (n - 1)))
        influence = placed.influence[0, rows] * corrected
        total = np.zeros(SUMS)
        of_rows: Iterable[tuple[slice, Floats]]
        of_rows = _drawn(len(influence), streams.at(int(ids[i]))) if kept is None else kept[i]
        for block, drawn in of_rows:
            total += influence[block] @ drawn
        sums[i] = total
    return sums


@lru_cache(maxsize=1)
def _kept(seed: int, hospitals: tuple[tuple[int, int], ...]) -> list[list[tuple[slice, Floats]]]:
    """The numbers of all rows of ``hospitals``, each its id and how many rows it has."""
    streams = Streams(seed, "sketches")
    return [list(_drawn(rows, streams.at(hospital))) for hospital, rows in hospitals]


def _drawn(rows: int, rng: np.random.Generator) -> Iterator[tuple[slice, Floats]]:
    """The numbers of a hospital's rows, some rows at a time."""
    for start in range(0, rows, ROWS):
        block = slice(start, min(start + ROWS, rows))
        yield block, rng.standard_normal((block.stop - block.start, SUMS))


def correlation(first: ArrayLike, second: ArrayLike) -> Floats:
    """How two models' AUROC vary together over patients at each hospital, ``[H]``, from their sums ``[H, B]``.

    NaN where one is undefined or does not vary.
    """
    a, b = (np.asarray(sums, dtype=np.float64) for sums in (first, second))
    with np.errstate(invalid="ignore", divide="ignore"):
        correlations: Floats = (a * b).sum(axis=1) / np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    return np.clip(correlations, -1.0, 1.0)


def paired_interval(
    first: ArrayLike, of_first: Interval, second: ArrayLike, of_second: Interval, correlations: ArrayLike
) -> Interval:
    """The 95 % interval of ``first - second [H]`` at each hospital, from the interval of each and their correlation.

    An undefined correlation counts as 0.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    r = np.nan_to_num(np.asarray(correlations, dtype=np.float64), nan=0.0)

    def reach(one: Floats, other: Floats) -> Floats:
        return np.sqrt(np.maximum(one * one + other * other - 2 * r * one * other, 0.0))

    low = reach(a - of_first.low, of_second.high - b)
    high = reach(of_first.high - a, b - of_second.low)
    return Interval(a - b - low, a - b + high)
