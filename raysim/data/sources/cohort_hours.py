"""Read the column ``time`` of hourly cohorts: its unit, and the rows before admission or without a time.

A time stored as a duration has a unit; a time stored as a number has none. If no unit is configured, the unit of
numbers is the first of seconds, minutes and hours in which all times are whole hours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import DataError
from raysim.core.words import counted
from raysim.data.sources.eicu.rows import fetch

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

Unit = Literal["hours", "minutes", "seconds"]

_HOUR: dict[Unit, int] = {"seconds": 3600, "minutes": 60, "hours": 1}
_OF_DURATIONS = {"s": 3600, "ms": 3_600_000, "us": 3_600_000_000, "ns": 3_600_000_000_000}
_LAST = 90 * 24
"""The last plausible time, in hours after admission. With an assumed unit, a later time is an error."""
_STEPS = (1, 2, 3, 4, 6, 8, 12, 24)
"""The plausible numbers of hours between rows. With an assumed unit, any other number is an error."""


@dataclass(frozen=True)
class Hours:
    """The length of an hour in the unit of each file's column ``time``, and notes on the times of a cohort."""

    length: Mapping[str, int]
    """The number of units of the column ``time`` in an hour, by the short name of the file, such as ``dyn``."""
    notes: tuple[str, ...]
    """Notes on the unit, steps of several hours, and rows that are left out."""


def read_hours(
    connection: duckdb.DuckDBPyConnection,
    kinds: Mapping[str, pa.DataType],
    files: Mapping[str, Path],
    unit: Unit | None,
) -> Hours:
    """Return the length of an hour in the unit of the column ``time``, for each file of a cohort. ``kinds`` is the type
    of the column, by the short name of each file that has it, such as ``dyn``.

    ``unit`` is the unit of times that are numbers (None: assume one). Raises ``DataError`` for times between full
    hours, and for a unit that cannot be right.
    """
    times = {name: _Times.read(connection, name, file) for name, file in files.items() if name in kinds}
    length = {name: hour for name, kind in kinds.items() if (hour := _of_duration(kind)) is not None}
    notes = []
    if plain := [name for name in kinds if name not in length]:
        assumed = unit or _assumed(np.concatenate([times[name].known for name in plain]))
        length |= dict.fromkeys(plain, _HOUR[assumed])
        if unit is None:
            which = " and ".join(files[name].name for name in plain)
            notes.append(
                f"{which}: time is a number, taken as {assumed} after admission (data.time_unit sets another unit)"
            )
    elif unit is not None:
        raise DataError(f"data.time_unit: {unit}, but column time holds durations, which have a unit; remove the key")
    for name, each in times.items():
        notes += each.notes(length[name], assumed=unit is None and name in plain)
    return Hours(length, tuple(notes))


def _of_duration(kind: pa.DataType) -> int | None:
    import pyarrow as pa

    return _OF_DURATIONS[kind.unit] if pa.types.is_duration(kind) else None


def _assumed(times: NDArray[Any]) -> Unit:
    """Return the shortest unit with which all times are whole hours; ``hours`` if there is none or all times are 0."""
    fits = (unit for unit, hour in _HOUR.items() if times.any() and not (times % hour).any())
    return next(fits, "hours")


@dataclass(frozen=True, eq=False)
class _Times:
    """The different values of the column ``time`` in one file."""

    file: Path
    known: NDArray[Any]
    rows: NDArray[np.int64]
    without: int

    @staticmethod
    def read(connection: duckdb.DuckDBPyConnection, view: str, file: Path) -> _Times:
        found = fetch(connection, f"SELECT time, count(*) AS n FROM {view} GROUP BY time ORDER BY time")
        n, missing = np.asarray(found["n"]), np.ma.getmaskarray(found["time"])
        values = np.ma.getdata(found["time"])
        missing |= ~np.isfinite(values.astype(np.float64))
        return _Times(file, values[~missing], n[~missing], int(n[missing].sum()))

    def notes(self, hour: int, *, assumed: bool) -> list[str]:
        """Return notes on the times, in which an hour is ``hour`` units long. Raises ``DataError`` for times between
        full hours and, if the unit is ``assumed``, for implausible times.
        """
        hours, between = np.divmod(self.known, hour)
        if uneven := int(self.rows[between != 0].sum()):
            raise DataError(
                f"data.path: {self.file} has {counted(uneven, 'row')} between full hours (column time); export the "
                "cohort by the hour"
            )
        last, step = hours.max(initial=0), int(np.gcd.reduce(hours.astype(np.int64)))
        if assumed and hours.any() and (last > _LAST or step not in _STEPS):
            raise DataError(
                f"data.path: {self.file} would have a row every {counted(step, 'hour')} up to hour {last:,.0f}, "
                "which is implausible; set data.time_unit to the unit of column time (hours, minutes or seconds)"
            )
        before = int(self.rows[self.known < 0].sum())
        notes = [f"{self.file.name}: a row only every {step} hours"] if step > 1 and len(hours) > 2 else []
        if before or self.without:
            left = f"{counted(before, 'row')} before admission, {self.without:,} without a time"
            notes.append(f"left out of {self.file.name}: {left}")
        return notes
