"""Any table with a column that names the hospital, or a file for each hospital, and a column to predict."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from raysim.core.errors import DataError, nearest
from raysim.core.words import as_yaml, counted
from raysim.data.federation import PARTS
from raysim.data.records import natural
from raysim.data.sources.columns import is_number, is_text, numbers, plain_text, texts
from raysim.data.sources.table_files import HOSPITAL, is_pattern, read_files, table_files
from raysim.data.sources.text_form import Keys

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from raysim.data.records import Records

MOST_CATEGORIES = 100  # a text column with more must be listed in data.categorical
MOST_CLASSES = 1000


class Table(BaseModel):
    """A CSV or Parquet file of yours, or one for each hospital, with one row for each prediction.

    The label is binary or multi-class: text, whole numbers or true/false. Classes are sorted naturally (numbers by
    value, false before true, texts alphabetically); of two, the last is class 1, the event, unless ``positive`` names
    it. With ``task: regression`` it is a number, taken in its own unit. Columns not named below are features: numbers
    and true/false are numeric, text is categorical.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", title="table")

    path: Path = Field(description="a .csv, .csv.gz or .parquet file, or one for each hospital: sites/*.csv")
    silo: str | None = Field(None, description="the column that names the hospital; None: the files of path do")
    label: str = Field(description="the column to predict")
    task: Literal["classification", "regression"] = Field("classification", description="what the label is")
    positive: str | None = Field(None, description="of a binary label, the class that is the event")
    numeric: list[str] | None = Field(None, description="numeric features; None: every further column of numbers")
    categorical: list[str] | None = Field(None, description="categorical features; None: every further column of text")
    drop: list[str] = Field([], description="columns that are no features")
    na_values: list[str] = Field([], description="values that stand for a missing one, in every column: -999, ?")
    separator: str | None = Field(None, description="what separates columns of a text; None: recognised")
    decimal: Literal[".", ","] | None = Field(None, description="the decimal mark of numbers; None: recognised")
    encoding: str | None = Field(None, description="the encoding of a text, such as cp1252; None: recognised")
    hospitals: list[str] | None = Field(None, description="the hospitals to keep; None: all")
    group: str | None = Field(None, description="the column that names the patient, for split.by: patient")
    part: str | None = Field(None, description="the column that names the part, as split.column")
    sex: str | None = Field(None, description="the column of the patient's sex; it stays a feature unless dropped")
    ethnicity: str | None = Field(None, description="the column of the patient's ethnicity, likewise")
    age: str | None = Field(None, description="the column of the patient's age in years, likewise")

    @field_validator("na_values", mode="before")
    @classmethod
    def _as_written(cls, values: Any) -> Any:
        # YAML reads -999 as a number; missing values are compared as they are written.
        if not isinstance(values, list):
            raise ValueError(f"{as_yaml(values)} is not a list; write [{as_yaml(values)}]")
        return [str(value) for value in values]

    @field_validator("separator")
    @classmethod
    def _one_sign(cls, value: str | None) -> str | None:
        value = {"\\t": "\t", "tab": "\t"}.get(value or "", value)
        if value is not None and (len(value) != 1 or value in '"\r\n'):
            raise ValueError(f"{as_yaml(value)} is not one sign; write ',', ';', '|' or tab")
        return value

    @field_validator("encoding")
    @classmethod
    def _of_text(cls, value: str | None) -> str | None:
        try:
            known = value is None or isinstance("".encode(value), bytes)
        except (LookupError, ValueError):
            known = False
        if not known:
            raise ValueError(f"{as_yaml(value)} is no encoding of texts; write utf-8, cp1252, utf-16 or another")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Table:
        if self.silo is None and not is_pattern(self.path.expanduser()):
            raise ValueError("silo: missing; name the column of the hospital, or a file for each (path: sites/*.csv)")
        if self._silo == self.label:
            raise ValueError(f"label: '{self.label}' is the silo column too; name another")
        if self.task == "regression" and self.positive is not None:
            raise ValueError(f"positive: '{self.positive}' names a class, task regression has none; remove it")
        for field in ("numeric", "categorical"):
            for name in getattr(self, field) or ():
                if name in self._never_features():
                    raise ValueError(f"{field}: '{name}' is the silo, label, group, part or a dropped column")
        both = set(self.numeric or ()) & set(self.categorical or ())
        if both:
            raise ValueError(f"categorical: '{min(both)}' is in numeric too; keep one")
        return self

    @property
    def _silo(self) -> str:
        """The column of the hospitals: that of the table, or the one that the names of its files make."""
        return HOSPITAL if self.silo is None else self.silo

    def _never_features(self) -> set[str]:
        return {self._silo, self.label, *self.drop} | {name for name in (self.group, self.part) if name is not None}

    def reserve(self, by: str | None, column: str | None) -> Table:
        """This table divided by column ``by``, or into the parts that ``column`` names."""
        group = self.group if by is None or (by == "patient" and self.group) else by
        changed = {"group": group, "part": column or self.part}
        left = [name for name in (self.group, self.part) if name is not None and name not in changed.values()]
        for field, name in (("by", by), ("column", column)):
            if name is not None and name in (self._silo, self.label):
                kind = "silo" if name == self._silo else "label"
                raise DataError(f"data.split.{field}: '{name}' is the {kind} column; name another")
        return self.model_copy(update={**changed, "drop": [*self.drop, *left]})

    @property
    def predicts(self) -> str:
        """What the label is, as a phrase for reports."""
        return self.label.replace("_", " ") + (f" ({self.positive})" if self.positive is not None else "")

    def files(self) -> Iterator[Path]:
        """The files of the table. Raises ``DataError`` where there is none, and for what is no table."""
        yield from table_files(self.path, "data.path")

    def read(self) -> Records:
        """Read the whole table. Raises ``DataError`` for unreadable files, missing columns and unusable values."""
        from raysim.data.records import Records

        files = list(self.files())
        as_text = [c for c in (self.silo, self.group, self.part, self.sex, self.ethnicity) if c is not None]
        read = read_files(
            files,
            as_text,
            self.na_values,
            keys=Keys(self.separator, self.decimal, self.encoding),
            dropped=self.drop,
            named_after=self.silo is None,
        )
        table = read.table
        self._check_columns(table)
        if not table.num_rows:
            raise DataError(f"data.path: '{self.path}' has no rows; a table needs at least one below its column names")
        silo = texts(table, self._silo, "data.silo")
        table, silo, kept, chosen = self._keep(table, silo)
        y, classes, label = self._labels(table) if self.task == "classification" else self._numbers(table)
        features = self._features(table)
        patients: dict[str, NDArray[Any]] = {}
        for attribute in ("sex", "ethnicity"):
            if name := getattr(self, attribute):
                patients[attribute] = texts(table, name, f"data.{attribute}", unknown="unknown")
        if self.age is not None:
            patients["age"] = numbers(table, self.age, "data.age").astype(np.float64)
        of_files = f" ({counted(len(files), 'file')})" if len(files) > 1 else ""
        return Records(
            features=features,
            y=y,
            classes=classes,
            silo=silo,
            group=None if self.group is None else texts(table, self.group, "data.group or data.split.by"),
            part=None if self.part is None else _parts(table, self.part),
            row=kept,
            na_values=tuple(self.na_values or ()),
            hospital_column=self._silo,
            label_column=self.label,
            patients=patients,
            notes=(
                f"table: {counted(table.num_rows, 'row')} of {self.path.expanduser()}{of_files}{chosen}, "
                f"{counted(features.shape[1], 'feature column')}; "
                f"label '{self.label}': {label}",
            ),
            warnings=read.remarks,
        )

    def _check_columns(self, table: pa.Table) -> None:
        names = table.column_names
        named: list[tuple[str, str | None]] = [
            ("silo", self._silo),
            ("label", self.label),
            ("group or data.split.by", self.group),
            ("split.column", self.part),
            ("sex", self.sex),
            ("ethnicity", self.ethnicity),
            ("age", self.age),
            *(("numeric", name) for name in self.numeric or ()),
            *(("categorical", name) for name in self.categorical or ()),
            *(("drop", name) for name in self.drop),
        ]
        for field, name in named:
            if name is not None and name not in names:
                hint = nearest(name, names)
                if hint.startswith("known") and len(names) > 20:
                    hint = f"known: {', '.join(sorted(names)[:20])}, ... ({len(names)} columns)"
                raise DataError(f"data.{field}: no column '{name}' in '{self.path}'; {hint}")

    def _keep(
        self, table: pa.Table, silo: NDArray[Any]
    ) -> tuple[pa.Table, NDArray[Any], NDArray[np.int64] | None, str]:
        """The rows of the chosen hospitals, their positions in the file (None: all are kept), and a note."""
        if self.hospitals is None:
            return table, silo, None, ""
        present = set(silo.tolist())
        for name in self.hospitals:
            if name not in present:
                hint = (
                    nearest(name, present)
                    if len(present) <= 20
                    else f"column '{self._silo}' names {len(present)} others"
                )
                raise DataError(f"data.hospitals: '{name}' has no rows; {hint}")
        kept = np.flatnonzero(np.isin(silo.astype(str), self.hospitals))
        if not len(kept):
            raise DataError("data.hospitals: an empty list keeps no hospital; name at least one, or remove the key")
        return table.take(kept), silo[kept], kept, f" ({len(self.hospitals)} chosen hospitals)"

    def _numbers(self, table: pa.Table) -> tuple[NDArray[np.float64], tuple[str, ...], str]:
        """Real labels ``[N]``, no class names, and a description of the label."""
        self._check_filled(table)
        values = numbers(table, self.label, "data.label")
        if (empty := np.isnan(values)).any():
            raise DataError(
                f"data.label: column '{self.label}' holds nan in row {int(empty.argmax()) + 1}; "
                "correct it or remove the row"
            )
        return values, (), f"a number, {values.min():.6g} to {values.max():.6g}, mean {values.mean():.6g}"

    def _check_filled(self, table: pa.Table) -> None:
        import pyarrow.compute as pc

        column = table.column(self.label)
        if column.null_count:
            row = pc.index(pc.is_null(column, nan_is_null=True), True).as_py() + 1
            raise DataError(
                f"data.label: column '{self.label}' has no value in {counted(column.null_count, 'row')} (first: row "
                f"{row}); fill them or remove the rows"
            )

    def _labels(self, table: pa.Table) -> tuple[NDArray[np.int64], tuple[str, ...], str]:
        """Class indices ``[N]``, class names, and a description of the classes."""
        import pyarrow as pa
        import pyarrow.compute as pc

        self._check_filled(table)
        column = table.column(self.label)
        if pa.types.is_floating(column.type):
            values = column.to_numpy()
            for wrong, is_wrong in (("nan", np.isnan(values)), ("an infinite value", np.isinf(values))):
                if is_wrong.any():
                    row = int(is_wrong.argmax()) + 1
                    raise DataError(
                        f"data.label: column '{self.label}' holds {wrong} in row {row}; correct it or remove the row"
                    )
            if (values != np.round(values)).any():
                at = int((values != np.round(values)).argmax())
                raise DataError(
                    f"data.label: column '{self.label}' holds {values[at]:g} in row {at + 1}; "
                    "classes are text, whole numbers or true/false: name another column, bin its values, or set "
                    "data.task: regression"
                )
        encoded = pc.dictionary_encode(plain_text(table, self.label, "data.label"))
        encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        labels = encoded.dictionary.to_pylist()
        if len(labels) > MOST_CLASSES:
            raise DataError(
                f"data.label: column '{self.label}' holds {len(labels):,} different values, more than {MOST_CLASSES:,} "
                "classes; name another column or group its values"
            )
        classes = natural(labels)
        if self.positive is not None:
            if self.positive not in classes:
                raise DataError(f"data.positive: '{self.positive}' is no class; {nearest(self.positive, classes)}")
            if len(classes) != 2:
                raise DataError(f"data.positive: '{self.positive}', but there are {len(classes)} classes; remove it")
            classes.sort(key=lambda name: name == self.positive)
        position = np.array([classes.index(name) for name in labels], np.int64)
        named = ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else "")
        return position[encoded.indices.to_numpy()], tuple(classes), named

    def _features(self, table: pa.Table) -> pd.DataFrame:
        """Numeric columns as float32, categorical ones as pandas categories, in the table's order."""
        import pandas as pd

        never, columns = self._never_features(), {}
        for name in table.column_names:
            if name in never:
                continue
            kind = self._kind(name, table.schema.field(name).type)
            if kind == "numeric":
                columns[name] = pd.Series(numbers(table, name, "data.numeric").astype(np.float32))
            elif kind == "categorical":
                columns[name] = self._category(table, name)
        if not columns:
            raise DataError(f"data.path: '{self.path}' has no feature column beside silo and label; add one")
        return pd.DataFrame(columns)

    def _kind(self, name: str, type: pa.DataType) -> str | None:
        import pyarrow as pa

        if name in (self.numeric or ()):
            return "numeric"
        if name in (self.categorical or ()):
            return "categorical"
        if is_text(type):
            return "categorical" if self.categorical is None else None
        if self.numeric is not None:
            return None
        if is_number(type) or pa.types.is_null(type):
            return "numeric"
        raise DataError(
            f"data.path: column '{name}' holds {type}, neither numbers nor text; drop it (data.drop) or convert it"
        )

    def _category(self, table: pa.Table, name: str) -> pd.Series[Any]:
        import pandas as pd

        values = plain_text(table, name, "data.categorical").to_pandas()
        categories = values.dropna().unique().tolist()
        if len(categories) > MOST_CATEGORIES and name not in (self.categorical or ()):
            raise DataError(
                f"data.categorical: text column '{name}' holds {len(categories):,} different values, more than "
                f"{MOST_CATEGORIES}: drop it (data.drop), list it in data.numeric if it is meant as numbers, or in "
                "data.categorical to keep it all the same"
            )
        return pd.Series(pd.Categorical(values, categories=natural(categories)))


def _parts(table: pa.Table, name: str) -> NDArray[np.int8]:
    written = texts(table, name, "data.split.column")
    part = np.full(len(written), -1, np.int8)
    for k, part_name in enumerate(PARTS):
        part[written == part_name] = k
    if (part < 0).any():
        row = int((part < 0).argmax())
        raise DataError(
            f"data.split.column: column '{name}' holds '{written[row]}' in row {row + 1}; write {', '.join(PARTS)}"
        )
    return part
