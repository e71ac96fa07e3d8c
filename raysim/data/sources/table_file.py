"""Reads a CSV or Parquet file whole, or says which line is wrong."""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from raysim.core.errors import DataError, nearest

if TYPE_CHECKING:
    import pyarrow as pa


INDEX = re.compile(r"__index_level_\d+__")
"""The name that pandas gives an unnamed index in a Parquet file; it holds row labels and is no column of the data."""


def check_table(path: Path, field: str) -> None:
    """Raise ``DataError`` naming ``field`` where there is no file, or one of another format."""
    if not path.exists():
        files = sorted(p.name for p in path.parent.iterdir()) if path.parent.is_dir() else []
        hint = f"; {nearest(path.name, files)}" if 0 < len(files) <= 20 else "; check the path"
        raise DataError(f"{field}: '{path}' does not exist{hint}")
    if not path.is_file():
        raise DataError(f"{field}: '{path}' is a folder; name a .csv, .csv.gz or .parquet file")
    if not path.name.lower().endswith((".csv", ".csv.gz", ".parquet", ".pq")):
        raise DataError(f"{field}: '{path}' is not .csv, .csv.gz or .parquet; convert it")


def read_table(
    path: Path, as_text: Sequence[str], na_values: Sequence[str] | None = None, field: str = "data.path"
) -> pa.Table:
    """The table at ``path``; columns ``as_text`` of a CSV stay as they are written (``007``), others are inferred.

    Empty fields and the usual spellings of "not available" are nulls; so are ``na_values`` in every column of numbers
    or texts. Raises ``DataError`` naming ``field`` for unreadable files.
    """
    parquet = path.name.lower().endswith((".parquet", ".pq"))
    table = _parquet(path, field) if parquet else _csv(path, as_text, na_values, field)
    names = table.column_names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{field}: '{path}' has two columns named '{twice}'; rename one")
    return without(table, na_values) if na_values else table


def without(table: pa.Table, na_values: Sequence[str]) -> pa.Table:
    """The table with nulls for ``na_values``: texts as they are written, numbers by value (``-999`` is ``-999.0``)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from raysim.data.sources.columns import is_number, is_text

    texts = pa.array(na_values, pa.string())
    sentinels = pa.array([value for text in na_values if (value := _number(text)) is not None], pa.float64())
    for k, name in enumerate(table.column_names):
        column = table.column(name)
        if pa.types.is_dictionary(column.type):
            column = pc.cast(column, column.type.value_type)
        if is_text(column.type):
            wrong = pc.is_in(pc.cast(column, pa.string()), value_set=texts)
        elif is_number(column.type) and not pa.types.is_boolean(column.type):
            wrong = pc.is_in(pc.cast(column, pa.float64(), safe=False), value_set=sentinels)
        else:
            continue
        if pc.any(wrong).as_py():
            table = table.set_column(k, name, pc.if_else(wrong, pa.scalar(None, column.type), column))
    return table


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _parquet(path: Path, field: str) -> pa.Table:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        table = parquet.ParquetFile(path).read()
        return table.drop_columns([name for name in table.column_names if INDEX.fullmatch(name)])
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{field}: '{path}' is not readable Parquet ({_reason(error)}); write it again") from None


def _csv(path: Path, as_text: Sequence[str], na_values: Sequence[str] | None, field: str) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    zipped = path.name.lower().endswith(".gz")
    options = arrow_csv.ConvertOptions(strings_can_be_null=True, column_types={name: pa.string() for name in as_text})
    if na_values:
        # Already while reading: otherwise a mark such as ? would turn a column of numbers into one of texts.
        options.null_values = [*options.null_values, *na_values]
    try:
        with pa.OSFile(str(path)) as file, pa.CompressedInputStream(file, "gzip") if zipped else file as stream:
            return arrow_csv.read_csv(
                stream, parse_options=arrow_csv.ParseOptions(newlines_in_values=True), convert_options=options
            )
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):
            raise DataError(f"{field}: '{path}' is empty; it needs a line of column names and rows") from None
        raise DataError(f"{field}: '{path}' {_wrong_line(path, zipped) or _unreadable(error)}") from None
    except (pa.ArrowException, OSError, EOFError) as error:
        what = "is a corrupt gzip file" if zipped else "cannot be read"
        remedy = "copy or compress it again" if zipped else "check the file"
        raise DataError(f"{field}: '{path}' {what} ({_reason(error)}); {remedy}") from None


def _wrong_line(path: Path, zipped: bool) -> str | None:
    """What is wrong with the first line that has more or fewer fields than the first."""
    try:
        with gzip.open(path, "rb") if zipped else path.open("rb") as raw:
            reader = csv.reader(io.TextIOWrapper(raw, encoding="utf-8-sig", newline=""))
            fields = len(next(reader))
            for row in reader:
                if row and len(row) != fields:
                    return f"line {reader.line_num} has {len(row)} fields, the first line {fields}; correct that line"
    except UnicodeDecodeError:
        return "is not UTF-8 text; save it as UTF-8"
    except (OSError, EOFError, csv.Error, StopIteration):
        return None
    return None


def _unreadable(error: Exception) -> str:
    return f"cannot be read as CSV ({_reason(error)}); correct it"


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:160]
