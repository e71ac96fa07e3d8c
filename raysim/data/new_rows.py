"""Read new rows with the columns that a run was trained with, from a CSV or Parquet file or a data frame.

Other columns are ignored. Every feature column must be present: a column left out by mistake would count as missing in
all rows. Single values may be missing in any feature column, unless the preprocessing is ``none``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from raysim.core.errors import DataError, nearest
from raysim.core.words import is_unicode, some
from raysim.data.fitted import MISSING, Categorical, Numeric, Preprocessing
from raysim.data.raw_columns import RawColumns
from raysim.data.sources.frame import arrow_table, check_index
from raysim.data.tables.columns import numbers, plain_text, texts
from raysim.data.tables.decimals import Expected, with_points
from raysim.data.tables.reading import filled_table, limited, unmarked, unquoted_table
from raysim.data.tables.rules import whole_name
from raysim.data.tables.table_files import is_pattern, read_files, table_files
from raysim.data.tables.text_form import Keys

if TYPE_CHECKING:
    import pandas as pd

FIELD = "table"
"""The name of the new rows in error messages."""

_SEVERAL = 10  # with fewer rows a column may be empty by chance
_NAMED = 6  # columns that a note names


@dataclass(frozen=True, eq=False, repr=False)
class NewRows:
    """Rows to score.

    - ``columns``: the values of the ``n`` rows.
    - ``hospitals [n]``: the name of each row's hospital; None if no column, file name or argument gives the hospital.
    - ``notes``: remarks on the file and on differences from the training rows, one line each.
    """

    columns: RawColumns
    hospitals: NDArray[Any] | None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.columns.rows


def read_new_rows(table: Path | pd.DataFrame, fitted: Preprocessing, hospital: str | None = None) -> NewRows:
    """Read the columns that the preprocessing ``fitted`` needs, in the same way as for training.

    Numbers are rounded to float32. ``hospital`` names the hospital of all rows; a column with hospitals is then
    ignored. Raises ``DataError`` naming the first column that is missing or cannot be read.
    """
    numeric = [column for column in fitted.columns if isinstance(column, Numeric)]
    categorical = [column for column in fitted.columns if isinstance(column, Categorical)]
    read, remarks = _read(table, fitted)
    values = np.empty((read.num_rows, len(numeric)), np.float32)
    for j, column in enumerate(numeric):
        values[:, j] = numbers(read, column.name, FIELD, remedy="correct it, or leave it empty")
    coded = [_coded(read, column.name) for column in categorical]
    columns = RawColumns(
        order=tuple(column.name for column in fitted.columns),
        numeric=tuple(column.name for column in numeric),
        values=values,
        categorical=tuple(column.name for column in categorical),
        codes=tuple(codes for codes, _ in coded),
        categories=tuple(categories for _, categories in coded),
    )
    homes: NDArray[Any] | None = None
    if hospital is not None:
        if not is_unicode(hospital):
            raise DataError(
                f"--hospital: {hospital!a} contains an invalid Unicode character; name one of the run's hospitals"
            )
        homes = np.full(read.num_rows, whole_name(hospital), dtype=object)
    elif fitted.hospital in read.column_names:
        homes = texts(
            read, fitted.hospital, FIELD, remedy=("fill in values, or name the hospital of all rows (--hospital)")
        )
    notes = (_unseen(column, *each) for column, each in zip(categorical, coded, strict=True))
    return NewRows(columns, homes, (*remarks, *_empty(columns), *filter(None, notes)))


def _read(table: Path | pd.DataFrame, fitted: Preprocessing) -> tuple[pa.Table, tuple[str, ...]]:
    """Return the columns that ``fitted`` needs, read as in training, and remarks on the file."""
    needed, written = [column.name for column in fitted.columns], fitted.reading
    numeric = [column.name for column in fitted.columns if isinstance(column, Numeric)]
    as_text = [fitted.hospital, *(name for name in needed if name not in numeric)]
    remarks: tuple[str, ...] = ()
    if isinstance(table, Path):
        usual = Keys(written.separator, written.decimal or ".", written.encoding)
        keys = Keys(decimal="." if written.decimal == "." else None)
        made = read_files(table_files(table, FIELD), as_text, FIELD, keys, usual=usual, numeric=numeric)
        read, remarks = made.table, tuple(f"{FIELD}: {remark}" for remark in made.remarks)
        names, where = read.column_names, f"'{table}'"
        if is_pattern(table.expanduser()) and fitted.hospital not in names:
            read = made.with_hospitals(fitted.hospital, FIELD)
    else:
        for name in (fitted.hospital, *needed):
            check_index(table, name, FIELD)
        read = filled_table(unquoted_table(arrow_table(table, FIELD, {fitted.hospital, *needed})))
        names, where = [str(name) for name in table.columns], "the data frame"
        read, *_ = with_points(read, Expected(written.decimal, "."), as_text, numeric, FIELD, where)
    missing = [name for name in needed if name not in names]
    if missing:
        remedy = nearest(missing[0], names) if 0 < len(names) <= 20 else "add it, because the run was trained with it"
        others = f" ({len(missing)} of {len(needed)} needed columns are missing)" if len(missing) > 1 else ""
        raise DataError(f"{FIELD}: no column '{missing[0]}' in {where}{others}; {remedy}")
    columns = {}
    for each in fitted.columns:
        column = read.column(each.name)
        if isinstance(each, Numeric) and pa.types.is_dictionary(column.type):
            column = plain_text(read, each.name, FIELD)
        columns[each.name] = unmarked(column, written.marks(each.name))[0]
        if isinstance(each, Numeric):
            columns[each.name] = limited(pa.table(columns), each.name, written).column(each.name)
    if fitted.hospital in read.column_names:
        columns[fitted.hospital] = read.column(fitted.hospital)
    return pa.table(columns), remarks


def _coded(table: pa.Table, name: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Read the column ``name`` as texts. Return a code per row, ``[n]`` (``MISSING`` without a value), and the text of
    each code.
    """
    if pa.types.is_temporal(kind := table.schema.field(name).type):
        raise DataError(f"{FIELD}: column '{name}' holds {kind}, but training had text; convert it to the same text")
    encoded = pc.dictionary_encode(plain_text(table, name, FIELD))
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    codes = encoded.indices.fill_null(MISSING).to_numpy(zero_copy_only=False)
    return codes.astype(np.int64), tuple(encoded.dictionary.to_pylist())


def _empty(columns: RawColumns) -> list[str]:
    if columns.rows < _SEVERAL:
        return []
    missing = np.isnan(columns.values).all(axis=0)
    empty = [name for name, absent in zip(columns.numeric, missing, strict=True) if absent]
    empty += [name for name, codes in zip(columns.categorical, columns.codes, strict=True) if (codes == MISSING).all()]
    named = some([f"'{name}'" for name in empty], _NAMED)
    return [f"{FIELD}: no value in any row of {named}; all are scored as if nothing was recorded"] if empty else []


def _unseen(column: Categorical, codes: NDArray[np.int64], written: tuple[str, ...]) -> str | None:
    unseen = np.append(
        column.positions(written) == len(column.categories), False
    )  # the last entry is for rows without a value
    rows = int(unseen[codes].sum())
    if not rows:
        return None
    first = written[int(unseen.argmax())]
    return (
        f"{FIELD}: column '{column.name}' has '{first}' or other categories that training rows did not have, in "
        f"{rows:,} of {len(codes):,} rows; these rows are scored with 0 for every category"
    )
