"""The files of a table: one file, or a file for each hospital, named by a pattern such as ``sites/*.csv``."""

from __future__ import annotations

import glob
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from raysim.core.errors import DataError
from raysim.core.words import counted, listed
from raysim.data.records import natural
from raysim.data.tables.columns import is_number, is_text, placed, plain_text
from raysim.data.tables.decimals import Mark
from raysim.data.tables.spelling import TOTALS
from raysim.data.tables.table_file import Read, check_table, read_table
from raysim.data.tables.text_form import NO_KEYS, Form, Keys

HOSPITAL = "hospital"
"""The name of the added column if files are named after hospitals."""

_ENDINGS = re.compile(r"(\.(csv|tsv|txt|tab|dat|data|parquet|pq))?(\.gz)?$", re.IGNORECASE)
_NAMED = 6  # columns and files that a sentence names


@dataclass(frozen=True)
class Files:
    """The rows of all files of a table together.

    - ``form``, ``decimal``: the form (such as separator and encoding) and the decimal mark of the first file.
    - ``thousands``: whether the first file's numbers had thousands separators.
    - ``converted``: whether the numbers of any file had decimal commas or thousands separators.
    - ``remarks``: sentences on the unusual properties of the files.
    - ``files``: each file with its number of rows, blank rows included.
    - ``rows [N]``: the position of each row of ``table`` among the rows of all files, blank rows included; None: no row
      is blank.
    """

    table: pa.Table
    form: Form | None
    decimal: Mark
    remarks: tuple[str, ...]
    files: tuple[tuple[Path, int], ...]
    thousands: bool = False
    rows: NDArray[np.int64] | None = None
    converted: bool = False

    def with_hospitals(self, column: str, field: str = "data.path") -> pa.Table:
        """Return the table with an added ``column``: the hospital after which each row's file is named.

        Raises ``DataError`` if there already is this column, or if two files are named after the same hospital.
        """
        if column in self.table.column_names:
            raise DataError(
                f"data.silo: not set, so hospitals are named after their files, but '{self.files[0][0]}' has a column "
                f"'{column}'; set data.silo: {column}, or rename the column"
            )
        homes: dict[str, Path] = {}
        for file, _ in self.files:
            if (other := homes.setdefault(hospital_of(file), file)) != file:
                raise DataError(
                    f"{field}: '{other}' and '{file}' are both of hospital '{hospital_of(file)}'; rename one"
                )
        of_rows = np.repeat(list(homes), [rows for _, rows in self.files])
        names = of_rows if self.rows is None else of_rows[self.rows]
        return self.table.append_column(column, pa.array(names, pa.string()))

    def placed(self, text: str) -> str:
        """Replace ``row N`` in a sentence, where ``N`` counts the rows of all files, by the row's number in its own
        file.

        The file's name is added if there are several files.
        """

        def of_file(found: re.Match[str]) -> str:
            row = placed(int(found[1]) - 1, self.rows)
            if len(self.files) == 1:
                return f"row {row}"
            for file, rows in self.files:
                if row <= rows:
                    return f"row {row} of '{file.name}'"
                row -= rows
            return found[0]

        return re.sub(r"\brow (\d+)\b", of_file, text) if len(self.files) > 1 or self.rows is not None else text


def is_pattern(path: Path) -> bool:
    """Whether ``path`` is a pattern that may match several files, and not itself a file."""
    return glob.has_magic(str(path)) and not path.exists()


def table_files(path: Path, field: str) -> list[Path]:
    """Return the file at ``path`` or, if ``path`` is a pattern, all files that match it.

    Raises ``DataError`` naming ``field`` if no file matches, or if a file is not a table.
    """
    path = path.expanduser()
    if not is_pattern(path):
        check_table(path, field)
        return [path]
    files = [Path(name) for name in natural(glob.glob(str(path), recursive=True)) if Path(name).is_file()]
    if not files:
        raise DataError(f"{field}: no file is named '{path}'; check the folder and the pattern")
    for file in files:
        check_table(file, field)
    return files


def hospital_of(file: Path) -> str:
    """Return a hospital's name: the name of its file without the ending."""
    return _ENDINGS.sub("", file.name)


def read_files(
    files: Sequence[Path],
    as_text: Sequence[str],
    field: str = "data.path",
    keys: Keys = NO_KEYS,
    *,
    usual: Keys = NO_KEYS,
    numeric: Sequence[str] = (),
    dropped: Collection[str] = (),
    named_after: bool = False,
) -> Files:
    """Read the tables of ``files`` and append their rows to one table.

    Where a file lacks a column, values are missing; a remark says so unless the column is in ``dropped``. ``as_text``,
    ``keys``, ``usual`` and ``numeric`` are as in :func:`raysim.data.tables.table_file.read_table`. With
    ``named_after``, an added column :data:`HOSPITAL` contains the hospital after which each row's file is named.

    Raises ``DataError`` naming ``field`` for files that cannot be read or end with a row of totals, and for column
    names that differ only in spelling.
    """
    read = [read_table(file, as_text, field, keys, usual, numeric) for file in files]
    apart = _typed_apart(read)  # a column's kind follows from the values of all files
    tables = [_as_texts(each.table, apart, field) for each in read]
    remarks = [*_remarks(files, read), *_differences(files, tables, dropped, field)]
    for file, table, each in zip(files, tables, read, strict=True):
        _check_last(file, table, each.rows, field)
        if len(files) > 1 and not table.num_rows:
            remarks.append(f"'{file}' has no rows")
    try:
        whole = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:  # for example large whole numbers next to floats
        types: dict[str, set[pa.DataType]] = {}
        for column in chain(*(table.schema for table in tables)):
            types.setdefault(column.name, set()).add(column.type)
        differing = [name for name, found in types.items() if len(found) > 1]
        texts = [_as_texts(table, differing, field) for table in tables]
        whole = pa.concat_tables(texts, promote_options="permissive")
    several = tuple((file, each.table.num_rows + each.blank) for file, each in zip(files, read, strict=True))
    form = read[0].form, read[0].decimal
    converted = any(each.decimal == "," or each.thousands for each in read)
    made = Files(whole, *form, tuple(remarks), several, read[0].thousands, _not_blank(read), converted)
    return replace(made, table=made.with_hospitals(HOSPITAL)) if named_after else made


def _not_blank(read: Sequence[Read]) -> NDArray[np.int64] | None:
    """Return the positions of rows that are not blank, counted over all rows of all files; None if no row is blank."""
    if all(each.rows is None for each in read):
        return None
    ends = np.cumsum([each.table.num_rows + each.blank for each in read]).tolist()
    starts = zip([0, *ends], read, strict=False)
    return np.concatenate(
        [at + (np.arange(each.table.num_rows) if each.rows is None else each.rows) for at, each in starts]
    )


def _typed_apart(read: Sequence[Read]) -> list[str]:
    """Return the names of the columns whose kind differs between files, such as texts in one and numbers in another."""
    kinds: dict[str, set[str]] = {}
    for each in read:
        for column in each.table.schema:
            if not pa.types.is_null(column.type):
                number = is_number(column.type) and not pa.types.is_boolean(column.type)
                kind = "number" if number else "text" if is_text(column.type) else str(column.type)
                kinds.setdefault(column.name, set()).add(kind)
    return [name for name, found in kinds.items() if len(found) > 1]


def _as_texts(table: pa.Table, names: Collection[str], field: str) -> pa.Table:
    for name in set(names) & set(table.column_names):
        table = table.set_column(table.column_names.index(name), name, plain_text(table, name, field))
    return table


def _check_last(file: Path, table: pa.Table, rows: NDArray[np.int64] | None, field: str) -> None:
    """Raise ``DataError`` if a column of texts has ``total`` or the like in the last row of a file, and in no other
    row.
    """
    if table.num_rows < 2:
        return
    for column in table.columns:
        last = column[-1].as_py() if is_text(column.type) else None
        if last is None or last.strip(" :").casefold() not in TOTALS:
            continue
        if pc.sum(pc.equal(column, last)).as_py() == 1:
            row = placed(table.num_rows - 1, rows)
            raise DataError(
                f"{field}: '{file}' ends with a row '{last}' (row {row}), which looks like a line of totals; remove "
                "that row"
            )


def _remarks(files: Sequence[Path], read: Sequence[Read]) -> list[str]:
    true_of: dict[str, list[Path]] = {}
    for file, each in zip(files, read, strict=True):
        for remark in each.remarks:
            true_of.setdefault(remark, []).append(file)
    subjects = {
        remark: f"'{of[0]}'" + (f" (and {counted(len(of) - 1, 'more file')})" if len(of) > 1 else "")
        for remark, of in true_of.items()
    }
    return [f"{subject} {remark}" for remark, subject in subjects.items()]


def _differences(files: Sequence[Path], tables: Sequence[pa.Table], dropped: Collection[str], field: str) -> list[str]:
    """Return a remark on the columns that some files lack. Raises ``DataError`` for nearly equal column names."""
    have = [[name for name in table.column_names if name not in dropped] for table in tables]
    partial = [name for name in dict.fromkeys(chain(*have)) if not all(name in names for names in have)]
    written: dict[str, str] = {}
    for name in partial:
        other = written.setdefault(re.sub(r"[\W_]", "", name).casefold(), name)
        if other != name:
            one, two = (
                next(f for f, names in zip(files, have, strict=True) if each in names) for each in (other, name)
            )
            raise DataError(
                f"{field}: column '{other}' of '{one.name}' is '{name}' in '{two.name}'; give it one name in all files"
            )
    if not partial:
        return []
    differences = []
    for name in partial[:_NAMED]:
        lacking = [f.name for f, names in zip(files, have, strict=True) if name not in names]
        many = f"{len(lacking)} of {len(files)} files" if len(lacking) > 2 else listed(lacking)
        differences.append(f"'{name}' (not in {many})")
    more = f" and {len(partial) - _NAMED} more" if len(partial) > _NAMED else ""
    return [f"files do not have the same columns: {', '.join(differences)}{more}; their values are missing there"]
