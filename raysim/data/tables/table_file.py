"""Read a whole table from a text or Parquet file, or report which line is wrong."""

from __future__ import annotations

import csv
import re
import zlib
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from raysim.core.errors import DataError, nearest
from raysim.core.words import counted, listed
from raysim.data.tables.blank_rows import blank_row_remark, without_blank
from raysim.data.tables.columns import placed, plain_text, widened
from raysim.data.tables.decimals import Expected, Mark, with_points
from raysim.data.tables.file_kinds import kind_of
from raysim.data.tables.reading import filled, filled_table, unquoted_table
from raysim.data.tables.text_form import NO_KEYS, SEPARATORS, Form, Keys, form_of, holds_values

INDEX = re.compile(r"__index_level_\d+__")
"""The pattern of the names of indices that pandas stores in Parquet files; they are not data."""


MOST_COLUMNS = 30_000
"""Largest number of columns of a table. With so many, a run with 100 rows takes about a minute and a gigabyte."""


@dataclass(frozen=True)
class Read:
    """A table that was read, and the properties of its file.

    - ``form``: the form of a text file (such as its separator and encoding); None: the file is Parquet.
    - ``decimal``: the decimal mark of the file's numbers.
    - ``thousands``: whether numbers had thousands separators.
    - ``remarks``: unusual properties of the file, each as the end of a sentence, such as
      ``is read with a decimal comma``.
    - ``rows [N]``: the position of each row in the file, from 0; None: no row was skipped.
    - ``blank``: the number of blank rows.
    """

    table: pa.Table
    form: Form | None
    decimal: Mark
    remarks: tuple[str, ...] = ()
    thousands: bool = False
    rows: NDArray[np.int64] | None = None
    blank: int = 0


def check_table(path: Path, field: str) -> None:
    """Raise ``DataError`` naming ``field`` if there is no file at ``path``, or if the file is not a table."""
    if not path.exists():
        folder = path.parent.iterdir() if path.parent.is_dir() else ()
        files = sorted(p.name for p in folder if p.is_file() and not p.name.startswith("."))
        hint = f"; {nearest(path.name, files)}" if 0 < len(files) <= 20 else "; check the path"
        raise DataError(f"{field}: '{path}' does not exist{hint}")
    if not (path.is_file() or path.is_dir()):
        raise DataError(f"{field}: '{path}' is a pipe or a device, not a file; save its content as a file")
    if path.is_dir():
        raise DataError(
            f"{field}: '{path}' is a folder; name a .csv, .csv.gz or .parquet file, or its files: {path / '*.csv'}"
        )
    kind_of(path, field)


def read_table(
    path: Path,
    as_text: Sequence[str],
    field: str = "data.path",
    keys: Keys = NO_KEYS,
    usual: Keys = NO_KEYS,
    numeric: Sequence[str] = (),
    names: Sequence[str] = (),
) -> Read:
    """Read the table at ``path``. The columns of a text file are read as texts, those of a Parquet file with their
    types.

    Blank rows are skipped. Texts that mean a missing value (:data:`raysim.data.tables.rules.MISSING`) become nulls; in
    the columns ``names``, only empty texts become nulls. Decimal commas become points, except in the columns
    ``as_text``. The columns ``numeric`` are numbers, whatever other texts they contain. ``keys`` are the separator,
    decimal mark and encoding of a text file; None: recognise it from the file. If a file can be read in two ways, the
    values ``usual`` are assumed.

    Raises ``DataError`` naming ``field`` if the file cannot be read as a table.
    """
    kind = kind_of(path, field)
    try:
        form = None if kind == "parquet" else form_of(path, kind == "gzip", keys, field, usual)
    except (OSError, EOFError, zlib.error) as error:
        raise _damaged(path, kind == "gzip", error, field) from None
    columns = _parquet_names(path, field) if form is None else form.names
    if form is not None and not any(form.names):
        raise _no_names(path, field)
    if form is not None and holds_values(columns):
        raise DataError(
            f"{field}: '{path}' begins with a row of values; add a first line with the names of the columns"
        )
    if len(columns) > MOST_COLUMNS:
        raise DataError(
            f"{field}: '{path}' has {len(columns):,} columns, more than {MOST_COLUMNS:,}; remove columns that "
            "are not needed, or merge some into one"
        )
    table, left_out = (_parquet(path, field), ()) if form is None else _csv(path, form, field)
    several = table.num_rows + len(left_out)
    table, rows = without_blank(unquoted_table(table), left_out)
    if form is not None and (again := _names_again(table)):
        row = placed(again - 1, rows)
        raise DataError(f"{field}: '{path}' has its column names again in row {row}; remove that row")
    table, nameless = _without_nameless(table)
    columns = table.column_names
    if len(set(columns)) < len(columns):
        repeated = next(name for name in columns if columns.count(name) > 1)
        raise DataError(f"{field}: '{path}' has two columns named '{repeated}'; rename one")
    expected = Expected(
        keys.decimal,
        usual.decimal,
        usual.decimal if form is None or form.separator == usual.separator else None,
        form is not None and form.separator != ",",
    )
    table, decimal, thousands = with_points(filled_table(table, names), expected, as_text, numeric, field, f"'{path}'")
    remarks = *_remarks(path, form, decimal, keys, usual, nameless), thousands, blank_row_remark(rows, several)
    return Read(table, form, decimal, tuple(filter(None, remarks)), bool(thousands), rows, several - table.num_rows)


def _without_nameless(table: pa.Table) -> tuple[pa.Table, int]:
    named = [
        k for k, name in enumerate(table.column_names) if name or filled(table.column(k)).null_count < table.num_rows
    ]
    return (table, 0) if len(named) == table.num_columns else (table.select(named), table.num_columns - len(named))


def _names_again(table: pa.Table) -> int:
    """Return the number, counted from 1, of the first row that repeats the first two column names; 0 if no row does.

    Such rows occur in files that were appended to one another.
    """
    alike = [pc.equal(table.column(k), name) for k, name in enumerate(table.column_names[:2]) if name]
    again = pc.index(pc.and_(alike[0], alike[-1]), True).as_py() if alike else -1
    return int(again) + 1


def _remarks(path: Path, form: Form | None, decimal: Mark, keys: Keys, usual: Keys, nameless: int) -> tuple[str, ...]:
    remarks = []
    plain_name = path.name.lower().removesuffix(".gz")
    if form is None and not plain_name.endswith((".parquet", ".pq")):
        remarks.append("is Parquet under another name, and is read as such")
    if form is not None:
        recognised = {}
        if form.separator != (usual.separator or ",") and keys.separator is None:
            recognised["separator"] = f"{SEPARATORS.get(form.separator, repr(form.separator))} between columns"
        if decimal != (usual.decimal or ".") and keys.decimal is None:
            recognised["decimal"] = "a decimal comma" if decimal == "," else "a decimal point"
        if form.encoding not in ("utf-8", usual.encoding) and keys.encoding is None:
            recognised["encoding"] = f"the encoding {form.encoding}"
        if recognised:
            named = listed([f"data.{key}" for key in recognised])
            verb = "names" if len(recognised) == 1 else "name"
            another = f"; {named} {verb} another" if usual == NO_KEYS else ""  # there is no key for new rows
            remarks.append(f"is read with {listed(list(recognised.values()))}{another}")
        if form.above:
            remarks.append(f"is read without {counted(form.above, 'line')} above its column names")
    if nameless:
        verb = "has" if nameless == 1 else "have"
        remarks.append(f"is read without {counted(nameless, 'column')} that {verb} neither a name nor a value")
    return tuple(remarks)


def _parquet(path: Path, field: str) -> pa.Table:
    try:
        with parquet.ParquetFile(path) as file:
            table, written = file.read(), (file.metadata.metadata or {}).get(b"ARROW:schema")
        table = table.drop_columns([name for name in table.column_names if INDEX.fullmatch(name)])
        table = pa.Table.from_arrays([widened(column) for column in table.columns], table.column_names)
        schema = None if written is None else pa.ipc.read_schema(pa.py_buffer(b64decode(written)))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{field}: '{path}' is not readable Parquet ({_reason(error)}); write it again") from None
    return table if schema is None else _categories(table, schema, field)


def _categories(table: pa.Table, written: pa.Schema, field: str) -> pa.Table:
    """Restore the dictionary type of columns that have this type in the schema ``written``. Parquet itself preserves
    this type only for texts.
    """
    for k, column in enumerate(table.schema):
        at = written.get_all_field_indices(column.name)  # several if names repeat, which the caller refuses
        as_written = written.field(at[0]).type if len(at) == 1 else column.type
        if pa.types.is_dictionary(as_written) and not pa.types.is_dictionary(column.type):
            table = table.set_column(k, column.name, plain_text(table, column.name, field).dictionary_encode())
    return table


def _parquet_names(path: Path, field: str) -> Sequence[str]:
    try:
        names: Sequence[str] = parquet.read_schema(path).names
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{field}: '{path}' is not readable Parquet ({_reason(error)}); write it again") from None
    return names


def _csv(path: Path, form: Form, field: str) -> tuple[pa.Table, list[int]]:
    left_out: list[int | None] = []

    def of_odd_width(row: arrow_csv.InvalidRow) -> str:
        if row.text.strip(f'{form.separator} \t"'):
            return "error"
        left_out.append(row.number)
        return "skip"

    options = arrow_csv.ConvertOptions(column_types=dict.fromkeys(form.names, pa.string()))
    parsing = arrow_csv.ParseOptions(
        delimiter=form.separator,
        newlines_in_values=True,
        ignore_empty_lines=False,
        invalid_row_handler=of_odd_width,
    )
    try:
        for threads in (True, False):  # only a single thread numbers the rows
            left_out.clear()
            reading = arrow_csv.ReadOptions(use_threads=threads, skip_rows=form.above, encoding=form.encoding)
            with pa.OSFile(str(path)) as file, pa.CompressedInputStream(file, "gzip") if form.zipped else file as data:
                table = arrow_csv.read_csv(data, reading, parsing, options)
            if not left_out:
                break
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):
            raise _no_names(path, field) from None
        raise DataError(f"{field}: '{path}' {_wrong_line(path, form) or _unreadable(error)}") from None
    except (pa.ArrowException, OSError, EOFError) as error:
        raise _damaged(path, form.zipped, error, field) from None
    numbers = [number - form.above - 2 for number in left_out if number is not None]
    return table.rename_columns([name.strip() for name in table.column_names]), numbers


def _no_names(path: Path, field: str) -> DataError:
    return DataError(f"{field}: '{path}' is empty; it needs a line of column names and rows")


def _damaged(path: Path, zipped: bool, error: Exception, field: str) -> DataError:
    what = "is a corrupt gzip file" if zipped else "cannot be read"
    remedy = "copy or compress it again" if zipped else "check the file"
    return DataError(f"{field}: '{path}' {what} ({_reason(error)}); {remedy}")


def _wrong_line(path: Path, form: Form) -> str | None:
    try:
        with form.lines(path) as file:
            for _ in range(form.above):
                next(file)
            reader = csv.reader(file, delimiter=form.separator)
            fields, line = len(next(reader)), form.above + reader.line_num
            for row in reader:
                line, begun = form.above + reader.line_num, line + 1
                if len(row) != fields and any(cell.strip() for cell in row):
                    first = "the first line" if not form.above else f"line {form.above + 1}"
                    remedy = f"correct line {line}"
                    if not row[-1] and len(row) == fields + 1:
                        remedy = "remove the separator at the ends of lines, or add one to the line of column names"
                    elif line > begun:
                        remedy = f"is a quotation mark not closed in line {begun}, where these fields begin?"
                    elif form.separator == "," and len(row) > fields:
                        remedy += "; is the decimal mark a comma, too? Then separate columns by semicolons"
                    return f"has {counted(len(row), 'field')} in line {line}, but {fields} in {first}; {remedy}"
    except (OSError, EOFError, zlib.error, csv.Error, StopIteration):
        return None
    return None


def _unreadable(error: Exception) -> str:
    return f"cannot be read as CSV ({_reason(error)}); correct it"


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:160]
