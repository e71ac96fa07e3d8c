"""The eICU Collaborative Research Database (demo or full) as a federation's rows.

Each ICU stay is one row, with features known by the prediction time. ``docs/eicu.md`` lists these features, and the
fields that are left out because they would reveal the label. DuckDB aggregates the csv files, with one SQL file for
each clinical domain, so tables may be larger than memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from raysim.core.errors import DataError
from raysim.core.words import counted
from raysim.data.records import Records
from raysim.data.sources.eicu import aki as eicu_aki
from raysim.data.sources.eicu import scores as eicu_scores
from raysim.data.sources.eicu.features import AT_24_HOURS, DOMAINS, FLAGS, TABLES, available, missing_tables
from raysim.data.sources.eicu.rows import attributes, counts, fetch, float32, text
from raysim.data.sources.eicu.tables import database, find_tables, sql

if TYPE_CHECKING:
    import duckdb

_CLASSES = {"mortality": ("alive", "expired"), "los": ("up to one day", "over one day"), "aki": ("no AKI", "AKI")}
_HOURS = {"mortality": 24.0, "los": 6.0, "los_days": 24.0, "aki": 24.0}

_PREDICTS = {
    "mortality": "death in hospital",
    "los": "ICU stay of more than a day",
    "los_days": "length of the ICU stay in days",
    "aki": "acute kidney injury within 48 hours",
}


class Eicu(BaseModel):
    """Stays of the eICU database in the folder ``path``.

    - ``task``: ``mortality`` (death in hospital), ``los`` (an ICU stay of more than 1,440 minutes), ``los_days`` (the
      length of the ICU stay in days, a regression), or ``aki`` (acute kidney injury that begins in the 48 hours after
      the prediction time).
    - ``silo``: what counts as a hospital: ``hospital``, ``ward``, or ``region_beds`` (region and number of beds).
    - ``hours``: the prediction time in hours after unit admission; no later record is a feature. By default 24, and 6
      for ``los``, whose label is known at hour 24.
    - ``minimum_hours``: stays that ended by this hour are left out. By default 0 for mortality (the prediction for a
      stay that ended before ``hours`` is made at its end), ``hours`` for ``los`` and ``los_days``, and 48 for ``aki``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path
    """The folder of the database's CSV files."""
    task: Literal["mortality", "los", "los_days", "aki"] = "mortality"
    """What is predicted."""
    silo: Literal["hospital", "ward", "region_beds"] = "hospital"
    """What counts as a hospital."""
    hours: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """When the prediction is made, in hours after admission to the unit; null: the default of the task."""
    minimum_hours: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Stays that ended within this number of hours after admission to the unit are left out; null: the default of
    the task."""
    _scores: tuple[str, ...] = PrivateAttr(())

    @model_validator(mode="after")
    def _los_is_not_known_yet(self) -> Eicu:
        if self.task == "los" and self._window_hours >= 24:
            raise ValueError(
                f"hours: {self._window_hours:g} must be below 24: the label of task los is known at hour 24"
            )
        if self.task in ("los", "los_days") and self._minimum < self._window_hours:
            raise ValueError(
                f"minimum_hours: {self.minimum_hours:g} is below hours ({self._window_hours:g}); a stay that ended "
                f"before the prediction time has a known label (task {self.task}); give at least {self._window_hours:g}"
            )
        if self.task == "aki" and self._minimum < self._window_hours:
            raise ValueError(
                f"minimum_hours: {self._minimum:g} is below hours ({self._window_hours:g}); task aki needs stays "
                f"that have not ended by the prediction time; give at least {self._window_hours:g}"
            )
        return self

    @property
    def _window_hours(self) -> float:
        return _HOURS[self.task] if self.hours is None else self.hours

    @property
    def _minimum(self) -> float:
        if self.minimum_hours is not None:
            return self.minimum_hours
        if self.task == "aki":
            return float(eicu_aki.AHEAD)
        return 0.0 if self.task == "mortality" else self._window_hours

    def _unused(self) -> tuple[str, ...]:
        return () if self._window_hours >= 24 else AT_24_HOURS

    def _tables(self) -> dict[str, Path]:
        tables = {name: path for name, path in find_tables(self.path).items() if name not in self._unused()}
        if self.silo == "region_beds" and "hospital" not in tables:
            raise DataError(
                f"data.silo: region_beds needs hospital.csv(.gz), which {self.path} lacks: add it or use silo hospital"
            )
        if self.task == "aki":
            eicu_aki.check_tables(tables, self.path)
        return tables

    def with_scores(self, names: tuple[str, ...]) -> Eicu:
        """Return this source, changed to read the scores ``names``, such as APACHE scores."""
        eicu_scores.check_names(names)
        scored = self.model_copy()
        scored._scores = names
        return scored

    @property
    def predicts(self) -> str:
        """The meaning of the label, as a phrase for reports."""
        return _PREDICTS[self.task]

    def files(self) -> Iterator[Path]:
        """Return the files of the tables that are used. Raises ``DataError`` if the folder or a needed table is
        missing.
        """
        yield from self._tables().values()
        if self._scores:
            yield eicu_scores.table_of(self.path)

    def read(self) -> Records:
        """Aggregate the tables to one row for each stay. Raises ``DataError`` for files that cannot be read, and if no
        stay remains.
        """
        tables = self._tables()
        with database(tables) as connection:
            for name, value in (("minutes", self._window_hours * 60), ("minimum", self._minimum * 60)):
                connection.execute(f"SET VARIABLE {name} = CAST({value!r} AS DOUBLE)")
            for name, choice in (("task", self.task), ("silo", self.silo)):
                connection.execute(f"SET VARIABLE {name} = '{choice}'")
            connection.execute(f"CREATE TEMP TABLE stays AS {sql('cohort')}")
            notes_of_task, missed = eicu_aki.label(connection, tables) if self.task == "aki" else ([], [])
            notes = self._count(connection, tables["patient"]) + notes_of_task
            connection.execute("CREATE TEMP TABLE cohort AS SELECT * FROM stays WHERE left_out IS NULL ORDER BY stay")
            stays = fetch(connection, "SELECT * FROM cohort ORDER BY stay")

            sex = text(stays["sex"])
            columns: dict[str, NDArray[np.float32]] = {
                "age": float32(stays["age"]),
                "sex": np.select([sex == "Male", sex == "Female"], [1.0, 0.0], np.nan).astype(np.float32),
                "bmi": float32(stays["bmi"]),
            }
            for domain in list(DOMAINS)[1:]:
                used = {table for sources in DOMAINS[domain].values() for table in sources} & tables.keys()
                if used:
                    aggregates, rows = _aggregate(connection, domain, available(domain, tables))
                    columns |= aggregates
                    notes += [line for table, line in rows.items() if table in used]

        lacking = missing_tables(tables, self._unused())
        if self._unused():
            notes.append(f"{' and '.join(self._unused())}: not used, their values are of the first 24 hours")
        silo = text(stays["silo"])
        return Records(
            features=eicu_aki.by_kind(columns) if self.task == "aki" else pd.DataFrame(columns),
            y=np.asarray(stays["label"], dtype=np.int64 if self.task in _CLASSES else np.float64),
            classes=_CLASSES.get(self.task, ()),
            silo=silo,
            group=text(stays["patient"]),
            patients={
                "sex": sex,
                "ethnicity": text(stays["ethnicity"]),
                "age": np.asarray(stays["age"], dtype=np.float64),
            },
            scores=eicu_scores.scores(self.path, self._scores, stays["stay"]) if self._scores else {},
            attributes=attributes(silo, stays) if "hospital" in tables else {},
            notes=tuple(notes),
            warnings=tuple(f"data.path: {self.path} {what}" for what in ([lacking] if lacking else []) + missed),
        )

    def _count(self, connection: duckdb.DuckDBPyConnection, patient: Path) -> list[str]:
        total, distinct, patients = counts(
            connection,
            "SELECT count(*), count(DISTINCT stay) + count(*) FILTER (stay IS NULL), count(DISTINCT patient) "
            "FROM stays",
        )
        if distinct < total:
            rows = counted(total - distinct, "row")
            raise DataError(
                f"data.path: {patient} lists stays more than once ({rows} too many by patientunitstayid): "
                "keep one row of each"
            )
        notes = [f"patient: {counted(total, 'stay')} of {counted(patients, 'patient')}"]
        reasons = connection.execute(
            "SELECT left_out, count(*) FROM stays WHERE left_out IS NOT NULL GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        left_out = ", ".join(f"{count:,} {reason}" for reason, count in reasons)
        if reasons:
            left_out = left_out.replace("that ended too early", f"that ended within {self._minimum:g} hours")
            notes.append(f"left out: {left_out}")
        stays, events, early = counts(
            connection,
            "SELECT count(*), coalesce(sum(label), 0), count(*) FILTER (until < getvariable('minutes')) "
            "FROM stays WHERE left_out IS NULL",
        )
        if not stays:
            raise DataError(f"data.path: {patient} has no stay that can be used: left out are {left_out}")
        if self.task in _CLASSES:
            event = _CLASSES[self.task][1]
            notes.append(f"{self.task}: {events:,} of {stays:,} stays are {event} ({events / stays:.1%})")
        else:
            (hours,) = counts(connection, "SELECT round(avg(label) * 24) FROM stays WHERE left_out IS NULL")
            notes.append(f"{self.task}: {hours / 24:.1f} days in the mean of {stays:,} stays")
        notes.append(
            f"prediction time: {self._window_hours:g} hours after unit admission"
            + (f"; the minute before their end for {counted(early, 'stay')} that ended sooner" if early else "")
        )
        return notes


def _aggregate(
    connection: duckdb.DuckDBPyConnection, domain: str, features: list[str]
) -> tuple[dict[str, NDArray[np.float32]], dict[str, str]]:
    """Compute the ``features`` of one clinical domain, ``[N]`` each in the cohort's order, and notes on their
    tables.
    """
    result = fetch(
        connection,
        f"WITH aggregated AS ({sql(domain)}) SELECT aggregated.* EXCLUDE (stay) FROM cohort LEFT JOIN aggregated "
        "USING (stay) ORDER BY stay",
    )
    absent = 0.0 if domain in FLAGS else np.nan
    columns = {feature: float32(result[feature], absent) for feature in features}
    notes = {}
    for table in TABLES:
        if f"rows_{table}" in result:
            rows = np.ma.filled(result[f"rows_{table}"], 0)
            notes[table] = (
                f"{table}: {counted(int(rows.sum()), 'row')} known in time, of {counted(int((rows > 0).sum()), 'stay')}"
            )
    return columns, notes
