"""The eICU tables as DuckDB views over their files, and one-line errors for files that cannot be read."""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import tempfile
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from raysim.core.errors import DataError
from raysim.core.installed import need
from raysim.data.sources.eicu.features import TABLES

if TYPE_CHECKING:
    import duckdb

Schema = Mapping[str, tuple[str, ...]]
"""The columns to read from each table, by the table's official name."""

MEMORY_LIMIT = "1GB"
_THREADS = min(4, os.cpu_count() or 1)
_CHUNK = 1 << 20


def find_tables(folder: Path, schema: Schema = TABLES) -> dict[str, Path]:
    """Find the files of the tables of ``schema`` in ``folder``. File names are table names, in upper or lower case,
    with the ending ``.csv`` or ``.csv.gz``.

    Raises ``DataError`` if the folder, or the ``patient`` table in it, does not exist, and if a table has two files.
    """
    if not folder.is_dir():
        raise DataError(f"data.path: {folder} is not a folder: name the folder of the eICU tables")
    official = {name.lower(): name for name in schema}
    files: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        stem = re.sub(r"\.csv(\.gz)?$", "", file.name.lower())
        if stem == file.name.lower() or stem not in official or not file.is_file():
            continue
        name = official[stem]
        if name in files:
            raise DataError(f"data.path: {folder} has both {files[name].name} and {file.name}: keep one of them")
        files[name] = file
    if "patient" not in files:
        raise DataError(f"data.path: {folder} has no patient.csv(.gz): name the folder of the eICU tables")
    return {name: files[name] for name in schema if name in files}


@contextmanager
def database(tables: Mapping[str, Path], schema: Schema = TABLES) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a DuckDB connection with a view of text columns for every table of ``schema``; the view of a table without a
    file is empty.

    Checksums of compressed files are checked, because DuckDB does not check them. Raises ``DataError`` naming a file
    that cannot be read, at the latest at the end of the ``with`` block, and ``ConfigError`` if DuckDB is not installed.
    """
    need("duckdb", "eicu", "data.source")
    import duckdb

    headers = {name: _header(name, path, schema[name]) for name, path in tables.items()}
    stop = threading.Event()
    with tempfile.TemporaryDirectory(prefix="raysim-eicu-") as spill, ThreadPoolExecutor(1) as checker:
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": MEMORY_LIMIT,
            "threads": _THREADS,
            "temp_directory": spill,
            "preserve_insertion_order": False,
            # DuckDB does not know the length of a compressed csv, and may hash its 146 million rows to look up the
            # stays in them. With joins in the written order, the cohort is always the hashed side.
            "disabled_optimizers": "join_order,build_side_probe_side",
        }
        connection = duckdb.connect(config=settings)
        checks = [checker.submit(_check, path, stop) for path in tables.values() if _gzipped(path)]
        try:
            connection.execute(sql("macros"))
            for name, columns in schema.items():
                source = _scan(tables[name], headers[name]) if name in tables else _nothing(columns)
                connection.execute(f"CREATE VIEW {name} AS {source}")
            try:
                yield connection
            except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException):
                raise  # The SQL is wrong, not the data.
            except duckdb.Error as error:
                raise _blame(connection, tables, error) from None
            for check in checks:
                check.result()
        finally:
            stop.set()
            connection.close()


def sql(name: str) -> str:
    """Read the SQL query in the file ``sql/<name>.sql``."""
    return (resources.files("raysim.data.sources.eicu") / "sql" / f"{name}.sql").read_text(encoding="utf-8")


def _scan(path: Path, header: list[str]) -> str:
    columns = ", ".join(f"{_quoted(name)}: 'VARCHAR'" for name in header)
    return (
        f"SELECT * FROM read_csv({_quoted(str(path))}, columns = {{{columns}}}, auto_detect = false, header = true, "
        f"delim = ',', quote = '\"', escape = '\"', nullstr = '', strict_mode = true, "
        f"compression = '{'gzip' if _gzipped(path) else 'none'}')"
    )


def _nothing(columns: tuple[str, ...]) -> str:
    return f"SELECT {', '.join(f'CAST(NULL AS VARCHAR) AS {name}' for name in columns)} WHERE false"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _header(name: str, path: Path, needed: Sequence[str]) -> list[str]:
    """Read the column names of a file in lower case. Raises ``DataError`` if there is no row or a column of ``needed``
    is absent.
    """
    try:
        with gzip.open(path) if _gzipped(path) else path.open("rb") as file:
            lines = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
            header = [column.strip().lower() for column in next(csv.reader([lines.readline()]), [])]
            empty = not any(line.strip() for line in iter(lines.readline, ""))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise _unreadable(path, error) from None
    if not header or empty:
        raise DataError(f"data.path: {path} has no rows: {_remedy(name)}")
    absent = [column for column in needed if column not in header]
    if absent:
        raise DataError(f"data.path: {path} has no column {', '.join(absent)}: {_remedy(name)}")
    return header


def _check(path: Path, stop: threading.Event) -> None:
    try:
        with gzip.open(path) as file:
            while not stop.is_set() and file.read(_CHUNK):
                pass
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: BaseException) -> DataError:
    if isinstance(error, PermissionError):
        return DataError(f"data.path: {path} may not be read: give yourself the permission to read it")
    if isinstance(error, UnicodeDecodeError):
        return DataError(f"data.path: {path} is not UTF-8 text: download it again")
    if isinstance(error, (gzip.BadGzipFile, EOFError, zlib.error)):
        return DataError(f"data.path: {path} is a damaged gzip file ({_first_line(error)}): download it again")
    return DataError(f"data.path: {path} cannot be read ({_first_line(error)}): download it again")


def _blame(connection: duckdb.DuckDBPyConnection, tables: Mapping[str, Path], error: duckdb.Error) -> DataError:
    """Return an error about the file that made a query fail: the one that DuckDB names, or the first that cannot be
    read.
    """
    import duckdb

    text = str(error)
    culprit = next((name for name, path in tables.items() if str(path) in text), None)
    for name in tables if culprit is None and not isinstance(error, duckdb.OutOfMemoryException) else ():
        try:
            connection.execute(f"SELECT count(COLUMNS(*)) FROM {name}").fetchall()
        except duckdb.Error as reason:
            culprit, text = name, str(reason)
            break
    if culprit is None:
        return DataError(f"data.path: the eICU tables could not be aggregated: {_first_line(error)}")
    path = tables[culprit]
    if _gzipped(path):
        # A damaged file may look like a file with too few columns.
        try:
            _check(path, threading.Event())
        except DataError as damage:
            return damage
    return DataError(f"data.path: {path} {_reason(text)}: {_remedy(culprit)}")


def _gzipped(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _reason(text: str) -> str:
    line = re.search(r"CSV Error on Line: (\d+)", text)
    where = f" in line {line[1]}" if line else ""
    if counts := re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", text):
        return f"has {counts[2]} values{where}, but {counts[1]} columns"
    if "unterminated quote" in text:
        return f"has a quote that is not closed{where}"
    if "unicode" in text.lower():
        return f"is not UTF-8 text{where}"
    return f"cannot be read{where} ({text.splitlines()[0]})"


def _remedy(name: str) -> str:
    if name == "patient":
        return "download it again"
    return "download it again, or move it away to run without it"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
