"""The eICU Collaborative Research Database (demo or full) as a federation's rows.

Each ICU stay is one row. Features are what was known by the prediction time; what they are, where they come from and
which fields are kept out as leaks is told in ``docs/eicu.md``. DuckDB aggregates straight from the csv files, one SQL
file for each clinical domain, so that tables larger than memory are read in one pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from raysim.data.eicu_features import AT_24_HOURS, DOMAINS, FLAGS, TABLES, available, missing_tables
from raysim.data.eicu_tables import database, find_tables, sql
from raysim.data.records import Records
from raysim.errors import DataError

if TYPE_CHECKING:
    import duckdb

_CLASSES = {"mortality": ("alive", "expired"), "los": ("up to one day", "over one day")}
_HOURS = {"mortality": 24.0, "los": 6.0}


class Eicu(BaseModel):
    """Stays of the eICU database in the folder ``path``.

    - ``task``: ``mortality`` (death in hospital) or ``los`` (an ICU stay of more than 1,440 minutes).
    - ``silo``: what counts as a hospital: ``hospital``, ``ward``, or ``region_beds`` (region and number of beds).
    - ``hours``: when the prediction is made, in hours after unit admission; nothing later is a feature. By default 24
      for mortality and 6 for ``los``, whose label is known at 24.
    - ``minimum_hours``: stays that ended earlier are left out. By default 0 for mortality (the prediction for a stay
      that ended before ``hours`` is made at its end) and ``hours`` for ``los``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path
    task: Literal["mortality", "los"] = "mortality"
    silo: Literal["hospital", "ward", "region_beds"] = "hospital"
    hours: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    minimum_hours: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _los_is_not_known_yet(self) -> Eicu:
        if self.task == "los":
            if self._window_hours >= 24:
                raise ValueError(f"hours: {self._window_hours:g} is not below 24, when the label of task los is known")
            if self.minimum_hours is not None and self.minimum_hours < self._window_hours:
                raise ValueError(
                    f"minimum_hours: {self.minimum_hours:g} is below hours ({self._window_hours:g}): for task los, a "
                    "stay that ended before the prediction time tells its label"
                )
        return self

    @property
    def _window_hours(self) -> float:
        return _HOURS[self.task] if self.hours is None else self.hours

    @property
    def _minimum(self) -> float:
        if self.minimum_hours is not None:
            return self.minimum_hours
        return self._window_hours if self.task == "los" else 0.0

    def _unused(self) -> tuple[str, ...]:
        return () if self._window_hours >= 24 else AT_24_HOURS

    def _tables(self) -> dict[str, Path]:
        tables = {name: path for name, path in find_tables(self.path).items() if name not in self._unused()}
        if self.silo == "region_beds" and "hospital" not in tables:
            raise DataError(
                f"data.silo: region_beds needs hospital.csv(.gz), which {self.path} lacks: add it or use silo hospital"
            )
        return tables

    def files(self) -> Iterator[Path]:
        """The files of the tables that are used. Raises ``DataError`` where the folder or a needed table is missing."""
        yield from self._tables().values()

    def read(self) -> Records:
        """Aggregate the tables. Raises ``DataError`` for files that cannot be read and where no stay is left."""
        import pandas as pd

        tables = self._tables()
        with database(tables) as connection:
            for name, value in (("minutes", self._window_hours * 60), ("minimum", self._minimum * 60)):
                connection.execute(f"SET VARIABLE {name} = CAST({value!r} AS DOUBLE)")
            for name, choice in (("task", self.task), ("silo", self.silo)):
                connection.execute(f"SET VARIABLE {name} = '{choice}'")
            connection.execute(f"CREATE TEMP TABLE stays AS {sql('cohort')}")
            notes = self._count(connection, tables["patient"])
            connection.execute("CREATE TEMP TABLE cohort AS SELECT * FROM stays WHERE left_out IS NULL ORDER BY stay")
            stays = _fetch(connection, "SELECT * FROM cohort ORDER BY stay")

            sex = _text(stays["sex"])
            columns: dict[str, NDArray[np.float32]] = {
                "age": _float32(stays["age"]),
                "sex": np.select([sex == "Male", sex == "Female"], [1.0, 0.0], np.nan).astype(np.float32),
                "bmi": _float32(stays["bmi"]),
            }
            for domain in list(DOMAINS)[1:]:
                used = {table for sources in DOMAINS[domain].values() for table in sources} & tables.keys()
                if used:
                    found, rows = _aggregate(connection, domain, available(domain, tables))
                    columns |= found
                    notes += [line for table, line in rows.items() if table in used]

        warning = missing_tables(tables, self._unused())
        if self._unused():
            notes.append(f"{' and '.join(self._unused())}: not used, their values are of the first 24 hours")
        silo = _text(stays["silo"])
        return Records(
            features=pd.DataFrame(columns),
            y=np.asarray(stays["label"], dtype=np.int64),
            classes=_CLASSES[self.task],
            silo=silo,
            group=_text(stays["patient"]),
            patients={
                "sex": sex,
                "ethnicity": _text(stays["ethnicity"]),
                "age": np.asarray(stays["age"], dtype=np.float64),
            },
            attributes=_attributes(silo, stays) if "hospital" in tables else {},
            notes=tuple(notes),
            warnings=(f"data.path: {self.path} {warning}",) if warning else (),
        )

    def _count(self, connection: duckdb.DuckDBPyConnection, patient: Path) -> list[str]:
        """What the patient table holds and which stays are left out; refuses a table that cannot be a cohort."""
        total, distinct, patients = _row(
            connection,
            "SELECT count(*), count(DISTINCT stay) + count(*) FILTER (stay IS NULL), count(DISTINCT patient) "
            "FROM stays",
        )
        if distinct < total:
            rows = "1 row" if total - distinct == 1 else f"{total - distinct:,} rows"
            raise DataError(
                f"data.path: {patient} lists stays more than once ({rows} too many by patientunitstayid): "
                "keep one row of each"
            )
        notes = [f"patient: {total:,} stays of {patients:,} patients"]
        reasons = connection.execute(
            "SELECT left_out, count(*) FROM stays WHERE left_out IS NOT NULL GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        left_out = ", ".join(f"{count:,} {reason}" for reason, count in reasons)
        if reasons:
            left_out = left_out.replace("that ended too early", f"that ended within {self._minimum:g} hours")
            notes.append(f"left out: {left_out}")
        kept, events, early = _row(
            connection,
            "SELECT count(*), coalesce(sum(label), 0), count(*) FILTER (until < getvariable('minutes')) "
            "FROM stays WHERE left_out IS NULL",
        )
        if not kept:
            raise DataError(f"data.path: {patient} has no stay to learn from: left out are {left_out}")
        notes.append(f"{self.task}: {events:,} of {kept:,} stays are {_CLASSES[self.task][1]} ({events / kept:.1%})")
        notes.append(
            f"prediction time: {self._window_hours:g} hours after unit admission"
            + (f"; the minute before their end for {early:,} stays that ended sooner" if early else "")
        )
        return notes


def _aggregate(
    connection: duckdb.DuckDBPyConnection, domain: str, features: list[str]
) -> tuple[dict[str, NDArray[np.float32]], dict[str, str]]:
    """``features`` of one domain, ``[N]`` each in the order of the cohort, and a note on each of its tables."""
    result = _fetch(
        connection,
        f"WITH found AS ({sql(domain)}) SELECT found.* EXCLUDE (stay) FROM cohort LEFT JOIN found USING (stay) "
        "ORDER BY stay",
    )
    absent = 0.0 if domain in FLAGS else np.nan
    columns = {feature: _float32(result[feature], absent) for feature in features}
    notes = {}
    for table in TABLES:
        if f"rows_{table}" in result:
            rows = np.ma.filled(result[f"rows_{table}"], 0)
            notes[table] = f"{table}: {int(rows.sum()):,} rows known in time, of {int((rows > 0).sum()):,} stays"
    return columns, notes


def _attributes(silo: NDArray[Any], stays: dict[str, NDArray[Any]]) -> dict[str, dict[str, str]]:
    """What is known of each silo; ``mixed`` where its hospitals differ."""
    names, of_silo = np.unique(silo, return_inverse=True)
    attributes: dict[str, dict[str, str]] = {str(name): {} for name in names}
    for attribute in ("region", "beds", "teaching"):
        values = _text(stays[attribute])
        for k, name in enumerate(attributes):
            found = np.unique(values[of_silo == k])
            attributes[name][attribute] = str(found[0]) if len(found) == 1 else "mixed"
    return attributes


def _fetch(connection: duckdb.DuckDBPyConnection, query: str) -> dict[str, NDArray[Any]]:
    """The columns of a query's result; masked where a value is missing."""
    return {str(name): np.ma.asarray(values) for name, values in connection.execute(query).fetchnumpy().items()}


def _text(values: NDArray[Any]) -> NDArray[Any]:
    # Fixed-width text, which can be stored without pickling.
    return np.asarray(np.ma.filled(values, "unknown"), dtype=str)


def _float32(values: NDArray[Any], absent: float = np.nan) -> NDArray[np.float32]:
    return np.asarray(np.ma.filled(values.astype(np.float32), absent), dtype=np.float32)


def _row(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[int, ...]:
    row = connection.execute(query).fetchone()
    assert row is not None  # An aggregate without GROUP BY always gives one row.
    return tuple(int(value) for value in row)
