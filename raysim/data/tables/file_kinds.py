"""Recognise a file's kind by its content, not its name. A file that is not a table is rejected, with advice."""

from __future__ import annotations

import shlex
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from raysim.core.errors import DataError

Kind = Literal["text", "gzip", "parquet"]
"""The kinds of files that can be read: text, text compressed by gzip, and Parquet."""

HEAD = 4096
"""The number of bytes at the beginning of a file by which its kind is recognised."""

_BY_PANDAS = (
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel workbook of the old kind", "read_excel", "xlrd"),
    (b"$FL2", "an SPSS file", "read_spss", "pyreadstat"),
    (b"<stata_dta>", "a Stata file", "read_stata", ""),
    (b"\0" * 12 + b"\xc2\xea\x81\x60", "a SAS file", "read_sas", ""),
    (b"HEADER RECORD*******LIB", "a SAS file", "read_sas", ""),
    (b"ARROW1", "a Feather file", "read_feather", ""),
    (b"ORC", "an ORC file", "read_orc", ""),
)
"""The first bytes of files that pandas can convert, each with the kind of file, the pandas function, and the package
that this function needs (empty: none).
"""

_PACKED = (
    (b"BZh", "compressed by bzip2", "bunzip2 -k"),
    (b"\xfd7zXZ\0", "compressed by xz", "unxz -k"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "unzstd"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "7z x"),
    (b"Rar!", "a RAR archive", "unrar x"),
)
"""The first bytes of compressed files, with kind and command to unpack."""

_NO_TABLES = (
    (b"%pdf", "a PDF", "ask for the table behind it as CSV"),
    (b"<!doctype html", "a web page (HTML)", "download the file itself, not the page that shows it"),
    (b"<html", "a web page (HTML)", "download the file itself, not the page that shows it"),
    (b"<?xml", "XML", "ask for the table as CSV"),
    (b"{\\rtf", "a text document (RTF)", "ask for the table as CSV"),
    (b"version https://git-lfs", "a pointer of Git LFS", "fetch the file that it stands for: git lfs pull"),
    (b"\x89hdf", "an HDF5 file", "write its table as CSV or Parquet"),
    (b"\x93numpy", "a numpy array", "write it as CSV with a first line of column names"),
    (b"\x89png", "a picture", "ask for the table as CSV"),
    (b"\xff\xd8\xff", "a picture", "ask for the table as CSV"),
)
"""The first bytes (in lower case) of files without a table, with kind and advice."""


def kind_of(path: Path, field: str) -> Kind:
    """Return the kind of the file at ``path``. Raises ``DataError`` that names ``field`` if the file is not a table."""
    head = head_of(path)
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    if path.name.lower().endswith(".gz"):
        raise DataError(f"{field}: '{path}' is not a valid gzip file; copy or compress it again")
    if refused := _refused(path, head):
        raise DataError(f"{field}: '{path}' is {refused}")
    if path.name.lower().endswith((".parquet", ".pq")):
        raise DataError(f"{field}: '{path}' is not readable Parquet; write it again, or rename a text file to .csv")
    return "text"


def head_of(path: Path) -> bytes:
    """Read the first bytes of a file, by which its kind is recognised."""
    with path.open("rb") as file:
        return file.read(HEAD)


def _refused(path: Path, head: bytes) -> str | None:
    """Return what is wrong with a file, with advice; None if it may be text."""
    for start, what, function, package in _BY_PANDAS:
        if head.startswith(start):
            return f"{what}; {_converted(path, f'pandas.{function}({str(path)!r})', package)}"
    if head.startswith(b"SQLite format 3\0"):
        query = f"pandas.read_sql('SELECT * FROM {_one_of(_sqlite_tables, path)}', sqlite3.connect({str(path)!r}))"
        return f"an SQLite database; {_converted(path, query, also='sqlite3, ')}"
    if head[8:12] == b"DUCK":
        query = f"duckdb.connect({str(path)!r}, read_only=True).sql('FROM {_one_of(_duckdb_tables, path)}').df()"
        return f"a DuckDB database; {_converted(path, query, also='duckdb, ')}"
    if head.startswith(b"PK\x03\x04"):
        return _zipped(path)
    for start, what, command in _PACKED:
        if head.startswith(start):
            return f"{what}; unpack it: {command} {shlex.quote(str(path))}"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    for start, what, remedy in _NO_TABLES:
        if text.lower().startswith(start):
            return f"{what}, and no table; {remedy}"
    if text.startswith((b"{", b"[{", b"[[")):
        lines = ", lines=True" if text.startswith(b"{") and b"}\n{" in text else ""
        return f"JSON; {_converted(path, f'pandas.read_json({str(path)!r}{lines})')}"
    return None


def _zipped(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return "a corrupt zip archive; copy it again"
    if "xl/workbook.xml" in names or "xl/workbook.bin" in names:
        return f"an Excel workbook; {_converted(path, f'pandas.read_excel({str(path)!r})', 'openpyxl')}"
    if "content.xml" in names:
        return f"a LibreOffice table; {_converted(path, f'pandas.read_excel({str(path)!r})', 'odfpy')}"
    inside = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return f"a zip archive of {inside}; unpack it: unzip {shlex.quote(str(path))}"


def _converted(path: Path, reading: str, package: str = "", also: str = "") -> str:
    """Return a shell command that writes the data frame of the Python expression ``reading`` to a CSV file."""
    out = path.with_suffix(".csv")
    out = path.with_suffix(".converted.csv") if out == path else out
    program = f"import {also}pandas; {reading}.to_csv({str(out)!r}, index=False)"
    needed = f"pip install {package} && " if package else ""
    return f"convert it: {needed}python -c {_quoted(program)}"


def _quoted(program: str) -> str:
    """Quote a Python program for a shell: in double quotes, or in single quotes if the shell would change text in
    double quotes.
    """
    return shlex.quote(program) if any(letter in program for letter in '"$`\\!') else f'"{program}"'


def _one_of(tables: Callable[[Path], list[str]], path: Path) -> str:
    """Return the name of a database's only table, or the placeholder ``TABLE`` if the name is not certain."""
    names = tables(path)
    return names[0] if len(names) == 1 and names[0].isidentifier() else "TABLE"


def _sqlite_tables(path: Path) -> list[str]:
    import sqlite3
    from contextlib import closing

    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            return [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    except sqlite3.Error:
        return []


def _duckdb_tables(path: Path) -> list[str]:
    try:
        import duckdb
    except ImportError:
        return []
    try:
        with duckdb.connect(str(path), read_only=True) as database:
            return [str(row[0]) for row in database.execute("SHOW TABLES").fetchall()]
    except duckdb.Error:
        return []
