"""The source ``table``: any table with hospital and label columns, or a file for each hospital."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator, model_validator

from raysim.core.errors import DataError, nearest
from raysim.core.words import as_yaml, counted
from raysim.data.federation import PARTS
from raysim.data.records import Records
from raysim.data.sources.frame import FILE as FRAME
from raysim.data.tables.ages import in_years
from raysim.data.tables.columns import placed, texts
from raysim.data.tables.feature_columns import FURTHER, Wanted, feature_columns, number_column
from raysim.data.tables.hospital_attributes import hospital_attributes
from raysim.data.tables.labels import class_labels, number_labels
from raysim.data.tables.marks import without_marks
from raysim.data.tables.rules import NUMBER, Reading
from raysim.data.tables.spelling import check_cut, check_totals, check_twins, twin_columns, twin_warnings
from raysim.data.tables.table_files import HOSPITAL, Files, is_pattern, read_files, table_files
from raysim.data.tables.text_form import Keys

_MINUS = r"\s*(?:[<>]=?|≤|≥)?\s*-[0-9.,].*"  # a number, also beyond a limit, whose minus sign may have been another
_CONVERTED = rf"{_MINUS}|\s*(?:[<>]=?|≤|≥)?\s*(?:{NUMBER})\s*"


class Table(BaseModel):
    """A CSV or Parquet file, or one file for each hospital, with one row for each prediction.

    The label is binary or multi-class: text, whole numbers or true/false. Classes are sorted naturally (numbers by
    value, false before true, texts alphabetically). Of two classes, the last is class 1, the event, unless ``positive``
    names the event. With ``task: regression`` the label is a number in its original unit. Columns without a role are
    features: numbers and true/false are numeric, text is categorical.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", title="table")

    path: Path = Field(description="a .csv, .csv.gz or .parquet file, or one for each hospital: sites/*.csv")
    silo: str | None = Field(
        None, description="the column that names the hospital; null: the hospitals are named by the files of path"
    )
    label: str = Field(description="the column to predict")
    task: Literal["classification", "regression"] = Field("classification", description="the kind of label")
    unlabelled: Literal["refuse", "drop"] = Field("refuse", description="rows without a label: refuse, or drop them")
    positive: str | None = Field(None, description="the class of a binary label that is the event")
    numeric: list[str] | None = Field(None, description="numeric features; null: every further column of numbers")
    categorical: list[str] | None = Field(None, description="categorical features; null: every further column of text")
    drop: list[str] = Field([], description="columns that are not features")
    na_values: list[str] | dict[str, list[str]] = Field(
        [], description="values that mean a missing value: of all features (-999, ?), or {column: [-999]}"
    )
    censored: dict[Literal["<", ">"], Literal["half", "limit", "missing"]] = Field(
        {}, description='the rule for a value beyond a limit, such as <0.3: {"<": half}, limit or missing'
    )
    units: dict[str, list[str]] = Field(
        {}, description='spellings of units behind numbers, which are removed: {glucose: [mg/dl, "mg/dL"]}'
    )
    separator: str | None = Field(None, description="the separator of columns in a text file; null: recognised")
    decimal: Literal[".", ","] | None = Field(None, description="the decimal mark of numbers; null: recognised")
    encoding: str | None = Field(None, description="the encoding of a text, such as cp1252; null: recognised")
    hospitals: list[str] | None = Field(None, description="the hospitals to include; null: all")
    group: str | None = Field(None, description="the column that names the patient, for split.by: patient")
    part: str | None = Field(None, description="the column that names the part, as split.column")
    sex: str | None = Field(None, description="the column of the patient's sex; it stays a feature unless dropped")
    ethnicity: str | None = Field(
        None, description=("the column of the patient's ethnicity; it stays a feature unless dropped")
    )
    age: str | None = Field(None, description="the column of the patient's age; it stays a feature unless dropped")
    age_unit: Literal["years", "months", "days"] | None = Field(
        None, description="the unit of the age; null: years, and a name or values unlike years are refused"
    )
    _scores: tuple[str, ...] = PrivateAttr(())
    attributes: list[str] | dict[str, dict[str, str]] = Field(
        [], description="attributes of hospitals: columns of one value per hospital, or {region: {hospital: text}}"
    )

    @field_validator("na_values", mode="before")
    @classmethod
    def _as_written(cls, values: Any) -> Any:
        if isinstance(values, Mapping):
            return {str(name): _written(marks) for name, marks in values.items()}
        return _written(values)

    @field_validator("censored")
    @classmethod
    def _possible(cls, rules: dict[str, str]) -> dict[str, str]:
        if rules.get(">") == "half":
            raise ValueError(
                '">": half gives a value below the limit, but values marked > are above the limit; use limit or missing'
            )
        return rules

    @field_validator("separator")
    @classmethod
    def _one_sign(cls, value: str | None) -> str | None:
        value = {"\\t": "\t", "tab": "\t"}.get(value or "", value)
        if value is not None and (len(value) != 1 or value in '"\r\n'):
            raise ValueError(f"{as_yaml(value)} cannot separate columns; write ',', ';', '|' or tab")
        return value

    @field_validator("encoding")
    @classmethod
    def _of_text(cls, value: str | None) -> str | None:
        try:
            known = value is None or isinstance("".encode(value), bytes)
        except (LookupError, ValueError):
            known = False
        if not known:
            raise ValueError(f"{as_yaml(value)} is not an encoding of texts; write utf-8, cp1252, utf-16 or another")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Table:
        if self.silo is None and not is_pattern(self.path.expanduser()):
            raise ValueError(
                "silo: missing; name the column of the hospital, or give one file for each hospital (path: sites/*.csv)"
            )
        if self._silo == self.label:
            raise ValueError(f"label: '{self.label}' is the silo column too; name another")
        if self.task == "regression" and self.positive is not None:
            raise ValueError(f"positive: '{self.positive}' names a class, but task regression has none; remove the key")
        for field in ("numeric", "categorical"):
            for name in getattr(self, field) or ():
                if name in self._never_features():
                    raise ValueError(
                        f"{field}: '{name}' is the silo, label, group, part or a dropped column; remove it from {field}"
                    )
        both = (set(self.numeric or ()) & set(self.categorical or ())) - {FURTHER}
        if both:
            raise ValueError(f"categorical: '{min(both)}' is in numeric too; keep one")
        return self

    @property
    def _silo(self) -> str:
        return HOSPITAL if self.silo is None else self.silo

    def _described_by(self) -> list[str]:
        return self.attributes if isinstance(self.attributes, list) else []

    def _never_features(self) -> set[str]:
        return {self._silo, self.label, *self.drop, *self._scores} | {
            name for name in (self.group, self.part) if name is not None
        }

    def reserve(self, by: str | None, column: str | None) -> Table:
        """Return this source, changed to divide rows by two columns; an argument that is None changes nothing. Rows
        with the same value in the column ``by`` are all in one part. The column ``column`` names the part of each row.
        """
        group = self.group if by is None or (by == "patient" and self.group) else by
        changed = {"group": group, "part": column or self.part}
        left = [name for name in (self.group, self.part) if name is not None and name not in changed.values()]
        for field, name in (("by", by), ("column", column)):
            if name is not None and name in (self._silo, self.label):
                kind = "silo" if name == self._silo else "label"
                raise DataError(f"data.split.{field}: '{name}' is the {kind} column; name another")
        return self.model_copy(update={**changed, "drop": [*self.drop, *left]})

    def with_scores(self, names: tuple[str, ...]) -> Table:
        """Return this source, changed to read the columns ``names`` as existing clinical scores."""
        for name in names:
            if name in (self._silo, self.label, self.group, self.part):
                raise DataError(f"data.scores: '{name}' is the hospital, label, patient or part column; name another")
            for field in ("numeric", "categorical"):
                if name in (getattr(self, field) or ()):
                    raise DataError(f"data.scores: '{name}' is in data.{field} too; keep it in one")
        left = [name for name in self.drop if name not in names]
        scored = self.model_copy(update={"drop": left})
        scored._scores = names
        return scored

    @property
    def predicts(self) -> str:
        """The meaning of the label, as a phrase for reports."""
        return self.label.replace("_", " ") + (f" ({self.positive})" if self.positive is not None else "")

    def files(self) -> Iterator[Path]:
        """Return the files of the table. Raises ``DataError`` if there is no file, or if a file is not a table."""
        yield from table_files(self.path, "data.path")

    def read(self) -> Records:
        """Read the whole table. Raises ``DataError`` for unreadable files, absent columns and unusable values."""
        named = (self.silo, self.group, self.part, self.sex, self.ethnicity, *(self.categorical or ()), *self.drop)
        as_text = [name for name in named if name is not None] + self._described_by()
        try:
            records, unsure = self._read(as_text)
            return self._read([*as_text, *unsure])[0] if unsure else records
        except DataError as error:
            raise DataError(self._as_read(str(error))) from None

    def _read(self, as_text: Sequence[str]) -> tuple[Records, list[str]]:
        """Read the table, with the columns ``as_text`` as text even if they contain numbers. Also return the names of
        categorical columns in which a text may have lost a decimal comma, thousands separators or a typographic minus
        sign.
        """
        read = read_files(
            list(self.files()),
            as_text,
            keys=Keys(self.separator, self.decimal, self.encoding),
            numeric=self.numeric or (),
            dropped=self.drop,
            named_after=self.silo is None,
        )
        try:
            records = self._records(read)
        except DataError as error:
            raise DataError(read.placed(str(error))) from None
        changed = re.compile(_CONVERTED if read.converted else _MINUS, re.DOTALL)
        categories = records.features.select_dtypes("category")
        return records, [
            str(name)
            for name in categories
            if name not in as_text and any(map(changed.fullmatch, categories[name].cat.categories))
        ]

    def _as_read(self, text: str) -> str:
        if self.path.name != FRAME:
            return text
        return text.replace(f"'{self.path}'", "the data frame").replace(f"of {self.path}", "of the data frame")

    def _records(self, read: Files) -> Records:
        self._check_columns(read.table)
        alike = twin_columns([name for name in read.table.column_names if name not in self.drop])
        if not read.table.num_rows:
            raise DataError(f"data.path: '{self.path}' has no rows; a table needs at least one below its column names")
        na = self.na_values
        marks = {name: tuple(each) for name, each in na.items()} if isinstance(na, dict) else tuple(na)
        decimal = self.decimal or (read.decimal if read.decimal == "," or read.thousands else None)
        form = {} if read.form is None else {"separator": read.form.separator, "encoding": read.form.encoding}
        units = {name: tuple(each) for name, each in self.units.items()}
        reading = Reading(marks, dict(self.censored.items()), decimal, **form, units=units)
        roles = {self._silo: "hospital column", self.label: "label"}
        skipped = [name for name in (self.part, *self.drop) if name is not None]
        table, idle = without_marks(read.table, reading, roles, skipped)
        silo = texts(table, self._silo, "data.silo")
        table, silo, rows, chosen = self._keep(table, silo)
        table, silo, rows, unlabelled = self._with_label(table, silo, rows)
        check_twins("data.silo", "hospitals", Counter(silo.tolist()))
        group = None if self.group is None else texts(table, self.group, "data.group or data.split.by", rows=rows)
        check_totals("data.silo", silo, rows)
        check_cut("data.silo", self._silo, silo, rows)
        if group is not None:
            check_totals("data.group", group, rows)
            check_cut("data.group", str(self.group), group, rows)
        label = (
            class_labels(table, self.label, self.positive, rows)
            if self.task == "classification"
            else number_labels(table, self.label, rows)
        )
        never = self._never_features()
        names = [name for name in table.column_names if name not in never]
        made = feature_columns(table, names, Wanted(self.numeric, self.categorical), reading, rows)
        if made.frame.empty:
            raise DataError(f"data.path: '{self.path}' has no feature column apart from silo and label; add one")
        patients: dict[str, NDArray[Any]] = {}
        for attribute in ("sex", "ethnicity"):
            if name := getattr(self, attribute):
                patients[attribute] = texts(table, name, f"data.{attribute}", unknown="unknown")
                if name not in made.frame:  # a feature column has its own warning
                    alike += twin_warnings(f"data.{attribute}", Counter(patients[attribute].tolist()))
        if self.age is not None:
            given = number_column(table, self.age, "data.age", reading, rows)
            patients["age"] = in_years(given, self.age, self.age_unit, rows)
        scores = {name: number_column(table, name, "data.scores", reading, rows) for name in self._scores}
        described, differing = hospital_attributes(self.attributes, table, silo)
        of_files = f" ({counted(len(read.files), 'file')})" if len(read.files) > 1 else ""
        return Records(
            features=made.frame,
            y=label.y,
            classes=label.classes,
            silo=silo,
            group=group,
            part=None if self.part is None else _parts(table, self.part, rows),
            row=rows if read.rows is None else read.rows if rows is None else read.rows[rows],
            reading=reading,
            hospital_column=self._silo,
            label_column=self.label,
            patients=patients,
            scores=scores,
            attributes=described,
            notes=(
                self._as_read(
                    f"table: {counted(table.num_rows, 'row')} of {self.path.expanduser()}{of_files}{chosen}, "
                )
                + f"{counted(made.frame.shape[1], 'feature column')}; "
                f"label '{self.label}': {label.described}",
                *unlabelled,
                *made.notes,
            ),
            warnings=(
                *map(self._as_read, read.remarks),
                *map(read.placed, (*idle, *label.warnings, *made.warnings, *alike, *differing)),
            ),
        )

    def _check_columns(self, table: pa.Table) -> None:
        names = table.column_names
        if len(names) == 1:
            raise DataError(
                f"data.path: '{self.path}' has a single column, '{names[0]}'; set the separator (data.separator)"
            )
        named: list[tuple[str, str | None]] = [
            ("silo", self._silo),
            ("label", self.label),
            ("group or data.split.by", self.group),
            ("split.column", self.part),
            ("sex", self.sex),
            ("ethnicity", self.ethnicity),
            ("age", self.age),
            *(("scores", name) for name in self._scores),
            *(("attributes", name) for name in self._described_by()),
            *(("units", name) for name in self.units),
            *(("numeric", name) for name in self.numeric or () if name != FURTHER),
            *(("categorical", name) for name in self.categorical or () if name != FURTHER),
            *(("drop", name) for name in self.drop),
            *(("na_values", name) for name in self.na_values if isinstance(self.na_values, dict)),
        ]
        for field, name in named:
            if name is not None and name not in names:
                hint = nearest(name, names)
                if hint.startswith("known") and len(names) > 20:
                    hint = f"known: {', '.join(sorted(names)[:20])}, ... ({len(names)} columns)"
                raise DataError(f"data.{field}: no column '{name}' in '{self.path}'; {hint}")

    def _with_label(
        self, table: pa.Table, silo: NDArray[Any], rows: NDArray[np.int64] | None
    ) -> tuple[pa.Table, NDArray[Any], NDArray[np.int64] | None, tuple[str, ...]]:
        """Leave out rows without a label, if configured. Return the other rows, their hospitals, their positions in the
        file (None: they are the whole file), and notes.
        """
        column = table.column(self.label)
        if self.unlabelled == "refuse" or not pc.any(missing := pc.is_null(column, nan_is_null=True)).as_py():
            return table, silo, rows, ()
        labelled = np.flatnonzero(~missing.to_numpy())
        if not len(labelled):
            raise DataError(f"data.label: column '{self.label}' has no value in any row; name another")
        note = f"left out: {counted(table.num_rows - len(labelled), 'row')} without a value of '{self.label}'"
        return table.take(labelled), silo[labelled], labelled if rows is None else rows[labelled], (note,)

    def _keep(
        self, table: pa.Table, silo: NDArray[Any]
    ) -> tuple[pa.Table, NDArray[Any], NDArray[np.int64] | None, str]:
        """Return the rows of the configured hospitals, their hospitals, their positions in ``table`` (None: they are
        the whole table), and a note.
        """
        if self.hospitals is None:
            return table, silo, None, ""
        present = set(silo.tolist())
        for name in self.hospitals:
            if name not in present:
                hint = (
                    nearest(name, present)
                    if len(present) <= 20
                    else f"name some of the {len(present)} hospitals in column '{self._silo}'"
                )
                raise DataError(f"data.hospitals: '{name}' has no rows; {hint}")
        chosen = np.flatnonzero(np.isin(silo.astype(str), self.hospitals))
        if not len(chosen):
            raise DataError("data.hospitals: an empty list keeps no hospital; name at least one, or remove the key")
        return table.take(chosen), silo[chosen], chosen, f" ({len(self.hospitals)} chosen hospitals)"


def _written(values: Any) -> list[str]:
    """Convert the configured marks of missing values to texts, because YAML reads -999 as a number."""
    if not isinstance(values, list | tuple):
        raise ValueError(f"{as_yaml(values)} is not a list; write [{as_yaml(values)}]")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f"{as_yaml(value)} is not a text; quote the text of the table")
    return [str(value) for value in values]


def _parts(table: pa.Table, name: str, rows: NDArray[np.int64] | None) -> NDArray[np.int8]:
    written = texts(table, name, "data.split.column", rows=rows)
    part = np.full(len(written), -1, np.int8)
    for k, part_name in enumerate(PARTS):
        part[written == part_name] = k
    if (part < 0).any():
        at = int((part < 0).argmax())
        raise DataError(
            f"data.split.column: column '{name}' holds '{written[at]}' in row {placed(at, rows)}; "
            f"write {', '.join(PARTS)}"
        )
    return part
