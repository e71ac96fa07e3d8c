"""Reads a CSV or Parquet file whole, or says which line is wrong."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from raysim.core.errors import DataError, nearest
from raysim.data.reading import filled_table

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


def read_table(path: Path, field: str = "data.path") -> pa.Table:
    """The table at ``path``: the columns of a CSV file are texts as they are written, those of Parquet have its types.

    Texts that stand for a missing value (:data:`raysim.data.kinds.MISSING`) are nulls. Raises ``DataError`` naming
    ``field`` for unreadable files.
    """
    parquet = path.name.lower().endswith((".parquet", ".pq"))
    table = _parquet(path, field) if parquet else _csv(path, field)
    names = table.column_names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{field}: '{path}' has two columns named '{twice}'; rename one")
    return filled_table(table)


def _parquet(path: Path, field: str) -> pa.Table:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        table = parquet.ParquetFile(path).read()
        return table.drop_columns([name for name in table.column_names if INDEX.fullmatch(name)])
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{field}: '{path}' is not readable Parquet ({_reason(error)}); write it again") from None


def _csv(path: Path, field: str) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    zipped = path.name.lower().endswith(".gz")
    options = arrow_csv.ConvertOptions(column_types=dict.fromkeys(_header(path, zipped), pa.string()))
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


def _header(path: Path, zipped: bool) -> list[str]:
    """The names of the columns; none where the first line cannot be read, which Arrow then says."""
    try:
        with (
            gzip.open(path, "rb") if zipped else path.open("rb") as raw,
            io.TextIOWrapper(raw, encoding="utf-8-sig", errors="replace", newline="") as lines,
        ):
            return next(csv.reader(lines), [])
    except (OSError, EOFError, csv.Error, zlib.error):
        return []


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
