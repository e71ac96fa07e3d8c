"""Hourly cohorts in the layout of Yet Another ICU Benchmark, as a federation's rows.

R. van de Water et al., *Yet Another ICU Benchmark: A Flexible Multi-Center Framework for Clinical ML*, ICLR 2024. A
cohort is a folder of three files:

- ``dyn.parquet``: ``stay_id``, ``time`` and measurements, one row per hour.
- ``sta.parquet``: ``stay_id`` and values that do not change.
- ``outc.parquet``: ``stay_id``, ``label``, and ``time`` where every hour has a separate label.

A cohort does not contain the hospital of a stay; for eICU, the table ``patient`` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet
from pydantic import BaseModel, ConfigDict, Field

from raysim.core.errors import DataError
from raysim.core.words import counted
from raysim.data.records import Records
from raysim.data.sources.cohort_hours import Hours, Unit, read_hours
from raysim.data.sources.eicu.features import TABLES
from raysim.data.sources.eicu.rows import attributes, counts, fetch, float32, text
from raysim.data.sources.eicu.tables import database, find_tables, sql
from raysim.data.tables.columns import is_number, is_text

if TYPE_CHECKING:
    import duckdb

STATISTICS = ("last", "mean", "min", "max", "count")
"""The statistics of a measurement in a stay, each of which becomes a feature."""

_FILES = {"dyn": ("stay_id", "time"), "sta": ("stay_id",), "outc": ("stay_id", "label")}
_TABLES = {name: TABLES[name] for name in ("patient", "hospital")}

_PREDICTS = {
    "mortality24": "death in the ICU",
    "los": "length of the ICU stay",
    "aki": "acute kidney injury",
    "sepsis": "sepsis",
    "kidney_function": "kidney function",
}
"""The meaning of each task's label, by the name of the cohort's folder."""


class Yaib(BaseModel):
    """Stays of an hourly cohort of Yet Another ICU Benchmark.

    The features of a measurement are its last value, mean, minimum and maximum in the first ``hours`` hours, and the
    number of hours with a value. If every hour has a label, the label at hour ``hours`` is used. Stays without this
    label, or without a hospital in the eICU tables, are left out. A label stored as truth values, or as the whole
    numbers 0 and 1, has two classes; a label stored as floats is predicted as a number. Rows before admission are left
    out.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path = Field(description="the cohort's folder, with dyn.parquet, sta.parquet and outc.parquet")
    eicu: Path = Field(description="the folder of the eICU tables: patient is needed, hospital is used if present")
    silo: Literal["hospital", "ward", "region_beds"] = Field("hospital", description="as in source eicu")
    hours: int = Field(24, ge=1, description="hour of the prediction; nothing later is a feature")
    time_unit: Unit | None = Field(None, description="the unit of column time where it contains numbers, not durations")

    @property
    def predicts(self) -> str:
        """The meaning of the label, as a phrase for reports."""
        return _PREDICTS.get(self.path.name, f"label of {self.path.name}")

    def files(self) -> Iterator[Path]:
        """Return the cohort's files and the eICU tables that are used. Raises ``DataError`` if a needed file is
        missing.
        """
        for name in _FILES:
            if not (path := self._file(name)).is_file():
                raise DataError(f"data.path: {self.path} has no {path.name}; name the folder of one YAIB task")
            yield path
        yield from self._tables().values()

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.parquet"

    def _tables(self) -> dict[str, Path]:
        try:
            tables = find_tables(self.eicu, _TABLES)
        except DataError as error:
            raise DataError(str(error).replace("data.path", "data.eicu", 1)) from None
        if self.silo == "region_beds" and "hospital" not in tables:
            raise DataError(
                f"data.silo: region_beds needs hospital.csv(.gz), which {self.eicu} lacks; use silo hospital"
            )
        return tables

    def read(self) -> Records:
        """Aggregate the hourly measurements of the cohort to one row for each stay. Raises ``DataError`` for files that
        cannot be read or have another layout.
        """
        list(self.files())
        schemas = {name: self._schema(name) for name in _FILES}
        with database(self._tables()) as connection:
            for name in _FILES:
                path = str(self._file(name)).replace("'", "''")
                connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{path}')")
            kinds = {
                name: schemas[name].field("time").type for name in ("dyn", "outc") if "time" in schemas[name].names
            }
            hours = read_hours(connection, kinds, {name: self._file(name) for name in _FILES}, self.time_unit)
            notes = [*self._select(connection, hours), *hours.notes]
            stays = fetch(connection, "SELECT * FROM cohort ORDER BY stay")
            features = self._static(connection, schemas["sta"])
            features |= self._dynamic(connection, schemas["dyn"], hours.length["dyn"])
        return self._records(stays, features, schemas["outc"].field("label").type, notes)

    def _schema(self, name: str) -> pa.Schema:
        path = self._file(name)
        try:
            schema = parquet.read_schema(path)
        except (pa.ArrowException, OSError) as error:
            reason = " ".join(str(error).split())[:160]
            raise DataError(
                f"data.path: '{path}' is not readable Parquet ({reason}); export the cohort again"
            ) from None
        for column in _FILES[name]:
            if column not in schema.names:
                raise DataError(f"data.path: '{path}' has no column {column}; export the cohort in YAIB's layout")
        if "time" in schema.names and not _is_time(kind := schema.field("time").type):
            raise DataError(
                f"data.path: column time of '{path}' holds {kind}; export the cohort with the time since admission, "
                "as numbers or durations"
            )
        return schema

    def _select(self, connection: duckdb.DuckDBPyConnection, hours: Hours) -> list[str]:
        """Create the table ``cohort`` of the stays that have a label and a hospital, and return notes on the stays that
        are left out.
        """
        for name, value in (("minutes", 0.0), ("minimum", 0.0)):
            connection.execute(f"SET VARIABLE {name} = CAST({value!r} AS DOUBLE)")
        for name, choice in (("task", "mortality"), ("silo", self.silo)):
            connection.execute(f"SET VARIABLE {name} = '{choice}'")
        connection.execute(
            "CREATE TEMP TABLE known AS SELECT stay, patient, silo, region, beds, teaching, ethnicity "
            f"FROM ({sql('cohort')}) WHERE stay IS NOT NULL AND hospitalid IS NOT NULL"
        )
        hourly = "outc" in hours.length
        at = f"AND time = {self.hours * hours.length['outc']}" if hourly else ""
        connection.execute(
            f"CREATE TEMP TABLE labelled AS SELECT stay_id, label FROM outc WHERE label IS NOT NULL {at}"
        )
        self._refuse_repeated(connection, "labelled", "outc")
        self._refuse_repeated(connection, "sta", "sta")
        connection.execute(
            "CREATE TEMP TABLE cohort AS SELECT * FROM labelled JOIN known ON stay_id = stay ORDER BY stay"
        )
        everyone = " UNION ALL ".join(f"SELECT stay_id FROM {name}" for name in _FILES)
        every, labelled = (
            counts(connection, f"SELECT count(DISTINCT stay_id) FROM {name}")[0]
            for name in (f"({everyone})", "labelled")
        )
        stays, once = counts(connection, "SELECT count(*), count(DISTINCT stay_id) FROM cohort")
        if once < stays:
            raise DataError(
                f"data.eicu: the table patient of {self.eicu} lists stays more than once; keep one row for each stay"
            )
        when = f" at hour {self.hours}" if hourly else ""
        if not stays:
            raise DataError(
                f"data.eicu: none of {labelled:,} stays with a label{when} in {self.path} is in the patient table of "
                f"{self.eicu}; check that the cohort comes from this eICU database, and check data.hours"
            )
        return [
            f"yaib: {stays:,} of {every:,} stays of {self.path}, as known {self.hours} hours after admission",
            f"left out: {every - labelled:,} without a label{when}, {labelled - stays:,} without a hospital",
        ]

    def _refuse_repeated(self, connection: duckdb.DuckDBPyConnection, table: str, file: str) -> None:
        (more,) = counts(connection, f"SELECT count(*) - count(DISTINCT stay_id) FROM {table}")
        if more:
            raise DataError(
                f"data.path: {self._file(file)} has {counted(more, 'row')} more than stays; keep one row for each stay"
            )

    def _static(self, connection: duckdb.DuckDBPyConnection, schema: pa.Schema) -> dict[str, Any]:
        """Return the columns of ``sta`` as float32 numbers or categories, each ``[N]`` in the cohort's order."""
        frame = fetch(connection, "SELECT sta.* FROM cohort LEFT JOIN sta USING (stay_id) ORDER BY stay")
        columns: dict[str, Any] = {}
        for field in schema:
            if field.name == "stay_id":
                continue
            if is_text(field.type):
                values = frame[field.name].tolist()  # None where missing
                columns[field.name] = pd.Categorical(values, categories=sorted({v for v in values if v is not None}))
            else:
                columns[field.name] = float32(frame[field.name])
        return columns

    def _dynamic(
        self, connection: duckdb.DuckDBPyConnection, schema: pa.Schema, hour: int
    ) -> dict[str, NDArray[np.float32]]:
        """Compute the features ``<measurement>_<statistic>``, ``[N]`` each in the cohort's order."""
        chosen, measured = [], [field.name for field in schema if field.name not in _FILES["dyn"]]
        for k, field in enumerate(schema.field(name) for name in measured):
            if not is_number(field.type):
                raise DataError(
                    f"data.path: column {field.name} of {self._file('dyn')} holds {field.type}, not numbers; convert it"
                )
            # Sums of decimals do not depend on the order of rows. If an hour has two rows, the larger value is the
            # last.
            exact = f"TRY_CAST(v{k} AS DECIMAL(38, 9))"
            chosen += [
                f"arg_max(v{k}, row(time, v{k})) AS v{k}_last",
                f"CAST(sum({exact}) AS DOUBLE) / count({exact}) AS v{k}_mean",
                f"min(v{k}) AS v{k}_min, max(v{k}) AS v{k}_max, count(v{k}) AS v{k}_count",
            ]
        numbers = ", ".join(
            f"CASE WHEN isfinite(CAST({_name(name)} AS DOUBLE)) THEN CAST({_name(name)} AS DOUBLE) END AS v{k}"
            for k, name in enumerate(measured)
        )
        frame = fetch(
            connection,
            f"WITH early AS (SELECT stay, time, {numbers} FROM dyn JOIN cohort USING (stay_id) "
            f"WHERE time >= 0 AND time < {self.hours * hour}), "
            f"aggregated AS (SELECT stay, {', '.join(chosen)} FROM early GROUP BY stay) "
            "SELECT aggregated.* EXCLUDE (stay) FROM cohort LEFT JOIN aggregated USING (stay) ORDER BY stay",
        )
        return {
            f"{name}_{statistic}": float32(frame[f"v{k}_{statistic}"], 0.0 if statistic == "count" else np.nan)
            for k, name in enumerate(measured)
            for statistic in STATISTICS
        }

    def _records(
        self, stays: dict[str, NDArray[Any]], features: dict[str, Any], label: pa.DataType, notes: list[str]
    ) -> Records:
        values = np.asarray(stays["label"])
        classes: tuple[str, ...] = ()
        if pa.types.is_floating(label):
            y = values.astype(np.float64)
            notes.append(f"{self.path.name}: a number, {y.min():.6g} to {y.max():.6g}, mean {y.mean():.6g}")
        else:
            if not is_number(label) or not np.isin(values, (0, 1)).all():
                raise DataError(
                    f"data.path: column label of {self._file('outc')} holds values other than 0 and 1; "
                    "write 0 and 1, or truth values"
                )
            y, classes = values.astype(np.int64), (f"no {self.path.name}", self.path.name)
            notes.append(f"{self.path.name}: {y.sum():,} of {len(y):,} stays ({y.mean():.1%})")
        silo = text(stays["silo"])
        return Records(
            features=pd.DataFrame(features),
            y=y,
            classes=classes,
            silo=silo,
            group=text(stays["patient"]),
            patients=self._patients(stays, features),
            attributes=attributes(silo, stays) if "hospital" in self._tables() else {},
            notes=tuple(notes),
        )

    def _patients(self, stays: dict[str, NDArray[Any]], features: dict[str, Any]) -> dict[str, NDArray[Any]]:
        patients = {"ethnicity": text(stays["ethnicity"])}
        if isinstance(sex := features.get("sex"), pd.Categorical):
            patients["sex"] = np.asarray(pd.Series(sex).astype(object).fillna("unknown"), dtype=str)
        if isinstance(age := features.get("age"), np.ndarray):
            patients["age"] = age.astype(np.float64)
        return patients


def _is_time(type: pa.DataType) -> bool:
    return bool(pa.types.is_duration(type) or (is_number(type) and not pa.types.is_boolean(type)))


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'
