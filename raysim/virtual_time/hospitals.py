"""The simulated speed, connection, reliability and availability of each hospital."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from raysim.config.sections.system import DRAWS, LIMITS, MEGABIT, PERFECT, Hospital, SystemSection
from raysim.core.errors import ConfigError, DataError, nearest
from raysim.core.streams import stream
from raysim.strategies.base import Floats, Ids


@dataclass(frozen=True, eq=False)
class System:
    """The simulated speed, connection, reliability and availability of ``N`` hospitals. Arrays are ``[N]``."""

    rate: Floats
    """Rows trained per second."""
    down: Floats
    """Bytes received per second; infinite if transfers take no time."""
    up: Floats
    """Bytes sent per second; infinite if transfers take no time."""
    latency: Floats
    """The delay of each message in seconds."""
    availability: Floats
    """The probability that the hospital is available when called."""
    dropout: Floats
    """The probability that a called hospital drops out before its update arrives."""
    trace: Trace | None
    """The time intervals in which hospitals are available; None if availability is random."""

    def seconds(self, ids: Ids, rows: Floats, down: Floats | float, up: Floats | float) -> Floats:
        """Return the seconds ``[H]`` that the hospitals ``ids [H]`` need to receive ``down`` bytes, train on ``rows``
        rows and send ``up`` bytes."""
        transfer = 2.0 * self.latency[ids] + down / self.down[ids] + up / self.up[ids]
        return np.asarray(transfer + rows / self.rate[ids])


def resolve(section: SystemSection, names: Sequence[str], seed: int) -> System:
    """Return the properties of the hospitals ``names``; configured distributions are sampled with ``seed``.

    Raises ``ConfigError`` for an unreadable file, an unknown or missing hospital, or a value out of range.
    """
    values = {}
    for key, otherwise in PERFECT.items():
        amount = getattr(section, key)
        if isinstance(amount, dict):
            ((name, parameters),) = amount.items()
            values[key] = np.asarray(DRAWS[name](stream(seed, f"system/{key}"), len(names), *parameters), dtype=float)
            if key in ("availability", "dropout"):
                _check_values(key, values[key], names)
        else:
            values[key] = np.full(len(names), otherwise if amount is None else amount)
    where = {name: i for i, name in enumerate(names)}
    tabled = _read_table(section.table, names) if section.table is not None else {}
    for name in section.hospitals:
        if name not in where:
            raise ConfigError(f"system.hospitals: no hospital is called '{name}'; {nearest(name, names)}")
    for name, hospital in [*tabled.items(), *section.hospitals.items()]:
        for key, value in hospital.model_dump(exclude_none=True).items():
            values[key][where[name]] = value
    trace = None
    if section.trace is not None:
        trace = read_trace(section.trace, section.trace_period, names)
    return System(
        rate=values["rows_per_second"],
        down=values["downlink"] * MEGABIT,
        up=values["uplink"] * MEGABIT,
        latency=values["latency"],
        availability=values["availability"],
        dropout=values["dropout"],
        trace=trace,
    )


def _check_values(key: str, values: Floats, names: Sequence[str]) -> None:
    words, fits = LIMITS[key]
    wrong = np.flatnonzero(~fits(values))
    if len(wrong):
        raise ConfigError(
            f"system.{key}: the value sampled for {names[wrong[0]]} is {values[wrong[0]]:g}, not {words}; use the "
            "distribution uniform"
        )


def _read_table(path: Path, names: Sequence[str]) -> dict[str, Hospital]:
    hospitals: dict[str, Hospital] = {}
    federation = frozenset(names)
    for line, row in read_rows(path, "system.table", ("hospital",), tuple(LIMITS)):
        where, name, values = f"system.table: {path} line {line}", row.pop("hospital"), {}
        for key, text in row.items():
            if text:
                values[key] = number(text, f"{where}, {key}")
                words, fits = LIMITS[key]
                if not fits(np.float64(values[key])):
                    raise ConfigError(f"{where}, {key}: {values[key]:g} is not {words}")
        if name not in federation:
            raise ConfigError(f"{where}: no hospital is called '{name}'; {nearest(name, names)}")
        if name in hospitals:
            raise ConfigError(f"{where}: names '{name}' a second time; keep one line")
        hospitals[name] = Hospital(**values)
    missing = next((name for name in names if name not in hospitals), None)
    if missing is not None:
        raise ConfigError(f"system.table: {path} has no line for hospital '{missing}'; add one")
    return hospitals


ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Trace:
    """The time intervals in which hospitals are available.

    Interval ``r`` of the hospital with id ``hospital[r]`` begins at ``begin[r]`` and ends just before ``end[r]``. The
    intervals of a hospital are disjoint. All intervals repeat every ``period`` seconds (infinite: never). A hospital
    that is available at the end of a period remains so for the first ``carry [N]`` seconds of the next one.
    """

    hospital: Ids
    begin: Floats
    end: Floats
    period: float
    carry: Floats

    def until(self, now: float) -> Floats:
        """Return when each hospital becomes unavailable, ``[N]``; minus infinity for those unavailable at ``now``."""
        base, phase = self._split(now)
        available = (self.begin <= phase + ROUNDING * (1 + now)) & (phase < self.end)
        leaves = np.full(len(self.carry), -np.inf)
        who = self.hospital[available]
        leaves[who] = base + self.end[available] + np.where(self.end[available] == self.period, self.carry[who], 0.0)
        return leaves

    def following(self, now: float) -> float:
        """Return the next time after ``now`` at which some interval begins; infinite if there is none."""
        base, phase = self._split(now)
        later = self.begin[self.begin > phase + ROUNDING * (1 + now)]
        if len(later):
            return float(base + later.min())
        return float(base + self.period + self.begin.min()) if np.isfinite(self.period) else np.inf

    @property
    def moments(self) -> int:
        """Return the number of different times in a period at which some interval begins."""
        return len(np.unique(self.begin))

    def _split(self, now: float) -> tuple[float, float]:
        """Return when the period that contains ``now`` began, and the time since then."""
        if not np.isfinite(self.period):
            return 0.0, now
        # A moment that is a sum of periods may be rounded to just before the beginning of the next period.
        base = np.floor((now + ROUNDING * (1 + now)) / self.period) * self.period
        return float(base), float(max(0.0, now - base))


def read_trace(path: Path, period: float | None, names: Sequence[str]) -> Trace:
    """Read hospitals' intervals of availability from the columns ``hospital, from, to`` of a table.

    A hospital that is never available has a line with empty ``from`` and ``to``. Raises ``ConfigError`` for an invalid
    line, for a hospital without a line, and if there are no intervals.
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
            raise ConfigError(
                f"{where}: the value {end:g} of column 'to' is after the end of the period, {period:g}; raise "
                "system.trace_period"
            )
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
    """Return the intervals in ascending order, with those that touch or overlap merged.

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


def read_rows(
    path: Path, field: str, needed: Sequence[str], further: Sequence[str] = ()
) -> list[tuple[int, dict[str, str]]]:
    """Read a table of hospitals. Return the line number of each row, and the row's texts by column.

    ``field`` is the configuration key that names the file. Missing values are empty texts. Raises ``ConfigError`` if
    the file cannot be read, lacks a column in ``needed``, or has a column that is in neither ``needed`` nor
    ``further``.
    """
    from raysim.data.tables.columns import placed
    from raysim.data.tables.table_file import check_table, read_table
    from raysim.data.tables.text_form import Keys

    names, usual = ("hospital",), Keys(separator=",", decimal=".")
    try:
        check_table(path, field)
        found = read_table(path, names, field, usual=usual, names=names)
    except DataError as error:
        raise ConfigError(str(error)) from None
    columns = [name.strip() for name in found.table.column_names]
    for name in needed:
        if name not in columns:
            raise ConfigError(f"{field}: {path} has no column '{name}'; it has {', '.join(columns)}")
    for name in columns:
        if name not in (*needed, *further):
            raise ConfigError(f"{field}: {path} has an unknown column '{name}'; {nearest(name, [*needed, *further])}")
    rows = [["" if value is None else str(value).strip() for value in row.values()] for row in found.table.to_pylist()]
    return [(1 + placed(i, found.rows), dict(zip(columns, row, strict=True))) for i, row in enumerate(rows)]


def number(text: str, where: str) -> float:
    """Return ``text`` as a number. Raises a ``ConfigError`` that begins with ``where`` if ``text`` is not a number."""
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{where}: '{text}' is not a number") from None
