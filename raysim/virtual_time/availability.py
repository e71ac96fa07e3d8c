"""When hospitals are available: the intervals of a trace, on the virtual clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from raysim.core.errors import ConfigError, nearest
from raysim.core.tabular import number, read_rows
from raysim.strategies.base import Floats, Ids

ROUNDING = 1e-12
"""Relative error of a moment that is computed as a sum of durations."""


@dataclass(frozen=True, eq=False)
class Trace:
    """``R`` disjoint intervals: ``hospital [R]`` is available from ``begin [R]`` until before ``end [R]``.

    They repeat every ``period`` seconds (infinite: once). ``carry [N]``: how long each hospital that is available at
    the end of a period stays in the next.
    """

    hospital: Ids
    begin: Floats
    end: Floats
    period: float
    carry: Floats

    def until(self, now: float) -> Floats:
        """Return when each of ``N`` hospitals leaves, ``[N]``; minus infinity for those that are not available."""
        base, phase = self._split(now)
        available = (self.begin <= phase + ROUNDING * (1 + now)) & (phase < self.end)
        leaves = np.full(len(self.carry), -np.inf)
        who = self.hospital[available]
        leaves[who] = base + self.end[available] + np.where(self.end[available] == self.period, self.carry[who], 0.0)
        return leaves

    def following(self, now: float) -> float:
        """Return the next moment after ``now`` at which a hospital becomes available; infinite if none ever does."""
        base, phase = self._split(now)
        later = self.begin[self.begin > phase + ROUNDING * (1 + now)]
        if len(later):
            return float(base + later.min())
        return float(base + self.period + self.begin.min()) if np.isfinite(self.period) else np.inf

    @property
    def moments(self) -> int:
        """The number of moments of a period at which a hospital becomes available."""
        return len(np.unique(self.begin))

    def _split(self, now: float) -> tuple[float, float]:
        """Return the beginning of the period of ``now``, and the time since it."""
        if not np.isfinite(self.period):
            return 0.0, now
        # A moment that was reached by adding up periods may be just short of the one that begins there.
        base = np.floor((now + ROUNDING * (1 + now)) / self.period) * self.period
        return float(base), float(max(0.0, now - base))


def read_trace(path: Path, period: float | None, names: Sequence[str]) -> Trace:
    """Read a trace from a CSV file with the columns ``hospital, from, to``, which names every hospital.

    A hospital that is never available has a line with empty ``from`` and ``to``. Raises ``ConfigError`` naming the
    line.
    """
    field, index = "system.trace", {name: i for i, name in enumerate(names)}
    intervals: dict[int, list[tuple[float, float]]] = {}
    for line, row in read_rows(path, field, ("hospital", "from", "to")):
        where, name = f"{field}: {path} line {line}", row["hospital"]
        if name not in index:
            raise ConfigError(f"{where}: no hospital is called '{name}'; {nearest(name, names)}")
        presences = intervals.setdefault(index[name], [])
        if not row["from"] and not row["to"]:
            continue
        begin, end = number(row["from"], f"{where}, from"), number(row["to"], f"{where}, to")
        if not 0 <= begin < end:
            raise ConfigError(f"{where}: from {begin:g} to {end:g} is not an interval; give 0 <= from < to")
        if period is not None and end > period:
            raise ConfigError(f"{where}: to {end:g} is beyond system.trace_period {period:g}; raise that")
        presences.append((begin, end))
    missing = next((name for name in names if index[name] not in intervals), None)
    if missing is not None:
        raise ConfigError(f"{field}: {path} has no line for hospital '{missing}'; add one")
    merged = [(h, begin, end) for h, times in sorted(intervals.items()) for begin, end in joined(times)]
    if not merged:
        raise ConfigError(f"{field}: {path} has no interval for any hospital; add some")
    hospital = np.array([h for h, _, _ in merged], dtype=np.int64)
    begins, ends = (np.array([interval[k] for interval in merged]) for k in (1, 2))
    carry = np.zeros(len(names))
    if period is not None:
        first = begins == 0
        carry[hospital[first]] = np.where(ends[first] == period, np.inf, ends[first])
    return Trace(hospital, begins, ends, np.inf if period is None else period, carry)


def joined(intervals: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Intervals in order, those that touch or overlap made one.

    >>> joined([(5, 6), (0, 2), (1, 3), (3, 4)])
    [(0, 4), (5, 6)]
    """
    whole: list[tuple[float, float]] = []
    for begin, end in sorted(intervals):
        if whole and begin <= whole[-1][1]:
            whole[-1] = (whole[-1][0], max(whole[-1][1], end))
        else:
            whole.append((begin, end))
    return whole
