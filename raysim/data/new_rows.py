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
    read, name = _read(table, [fitted.hospital, *categorical], fitted.na_values)
    for column in fitted.columns:
        if column.name not in read.column_names:
            hint = nearest(column.name, read.column_names) if read.num_columns <= 20 else "the run was trained with it"
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


def _read(table: Path | pd.DataFrame, as_text: Sequence[str], na_values: Sequence[str]) -> tuple[pa.Table, str]:
    """The table, and what errors call it."""
    from raysim.data.sources.table_file import check_table, read_table, without

    if isinstance(table, Path):
        check_table(table, FIELD)
        return read_table(table, as_text, na_values or None, FIELD), f"'{table}'"
    read = arrow_table(table, FIELD)
    return without(read, na_values) if na_values else read, "the data frame"


def arrow_table(frame: pd.DataFrame, field: str) -> pa.Table:
    """The columns of a data frame, without its index. Raises ``DataError`` naming ``field`` for what Arrow refuses."""
    import pyarrow as pa

    named = frame.rename(columns=str)
    twice = named.columns[named.columns.duplicated()]
    if len(twice):
        raise DataError(f"{field}: the data frame has two columns named '{twice[0]}'; rename one")
    arrays = []
    for name in named.columns:
        try:
            arrays.append(pa.array(named[name], from_pandas=True))
        except (pa.ArrowException, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())[:120]
            raise DataError(
                f"{field}: column '{name}' of the data frame holds values of several kinds ({reason}); convert it, or "
                "drop it from the frame"
            ) from None
    return pa.table(arrays, names=list(named.columns))


def _coded(table: pa.Table, name: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The code of each row ``[n]`` (``MISSING`` where there is no value), and the text that each code stands for."""
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = pc.dictionary_encode(plain_text(table, name, FIELD))
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    codes = encoded.indices.fill_null(MISSING).to_numpy(zero_copy_only=False)
    return codes.astype(np.int64), tuple(encoded.dictionary.to_pylist())
