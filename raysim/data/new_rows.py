"""Rows that a federation does not hold, read as its source's columns: a CSV or Parquet file, or a data frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import DataError, nearest
from raysim.data.fitted import MISSING, Numeric, Preprocessing, RawColumns
from raysim.data.sources.columns import numbers, plain_text, texts
from raysim.data.sources.frame import arrow_table

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

FIELD = "table"
"""What errors call the rows."""


@dataclass(frozen=True, eq=False)
class NewRows:
    """``columns`` of ``n`` rows, and the name of each row's hospital, ``[n]``; None where the table names none."""

    columns: RawColumns
    hospitals: NDArray[Any] | None

    def __len__(self) -> int:
        return self.columns.rows


def read_new_rows(table: Path | pd.DataFrame, fitted: Preprocessing) -> NewRows:
    """The columns that ``fitted`` knows, as a federation's own were read; others are left aside.

    A number is rounded to float32. Raises ``DataError`` naming the first column that is missing or does not fit.
    """
    categorical = [column.name for column in fitted.columns if not isinstance(column, Numeric)]
    read, name = _read(table, fitted, [fitted.hospital, *categorical])
    named = read.column_names if isinstance(table, Path) else [str(each) for each in table.columns]
    for column in fitted.columns:
        if column.name not in named:
            hint = nearest(column.name, named) if 0 < len(named) <= 20 else "the run was trained with it"
            raise DataError(f"{FIELD}: no column '{column.name}' in {name}; {hint}")
    numeric = [column.name for column in fitted.columns if isinstance(column, Numeric)]
    values = np.empty((read.num_rows, len(numeric)), np.float32)
    for j, column_name in enumerate(numeric):
        values[:, j] = numbers(read, column_name, FIELD)
    coded = [_coded(read, column_name) for column_name in categorical]
    columns = RawColumns(
        order=tuple(column.name for column in fitted.columns),
        numeric=tuple(numeric),
        values=values,
        categorical=tuple(categorical),
        codes=tuple(codes for codes, _ in coded),
        categories=tuple(categories for _, categories in coded),
    )
    there = fitted.hospital in read.column_names
    return NewRows(columns, texts(read, fitted.hospital, FIELD).astype(str) if there else None)


def _read(table: Path | pd.DataFrame, fitted: Preprocessing, as_text: Sequence[str]) -> tuple[pa.Table, str]:
    """The table, and what errors call it."""
    from raysim.data.sources.table_file import check_table, read_table, without

    if isinstance(table, Path):
        check_table(table, FIELD)
        return read_table(table, as_text, fitted.na_values or None, FIELD), f"'{table}'"
    read = arrow_table(table, FIELD, [fitted.hospital, *(column.name for column in fitted.columns)])
    return without(read, fitted.na_values) if fitted.na_values else read, "the data frame"


def _coded(table: pa.Table, name: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The code of each row ``[n]`` (``MISSING`` where there is no value), and the text that each code stands for."""
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = pc.dictionary_encode(plain_text(table, name, FIELD))
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    codes = encoded.indices.fill_null(MISSING).to_numpy(zero_copy_only=False)
    return codes.astype(np.int64), tuple(encoded.dictionary.to_pylist())
