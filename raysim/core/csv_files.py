"""The writing and reading of all of raysim's CSV files.

A spreadsheet that opens a file must not run anything, and reading must return what was written. Spreadsheets treat a
cell that begins with ``=``, ``+``, ``-`` or ``@`` as a formula, which may run a program or send the sheet elsewhere.
Names of hospitals and categories come from other people's data. A text that begins with one of these characters is
therefore written with a ``'`` before it, which marks a text in spreadsheets. Numbers are written unchanged.
:func:`read_csv` removes the ``'`` again.
"""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray

_FORMULA = re.compile(r"'*(?:[\t\r\n]|\s*[=+\-@\uFF1D\uFF0B\uFF0D\uFF20])")
"""The beginnings of texts that are written with a ``'`` before them. Full-width forms are treated like the normal
characters."""

_QUOTED = re.compile(r'[",\r\n]')
"""The characters for which a cell is written in quotes."""

BLOCK = 50_000
"""The number of rows whose cells are converted to text at a time."""

_WRITTEN = re.compile(r"'(?='*(?:[\t\r\n]|\s*[=+\-@\uFF1D\uFF0B\uFF0D\uFF20]))")


SHORT = 10_000
"""The largest number of rows for which pandas handles texts faster as Python objects than in Arrow's form."""


@contextlib.contextmanager
def texts_for(rows: int) -> Iterator[None]:
    """A context in which pandas stores the texts of new tables as Python objects, if ``rows`` is at most :data:`SHORT`.

    The texts do not change. This reduces the time for the tables and the page of a comparison of few hospitals by a
    fifth.
    """
    if rows > SHORT:
        yield
        return
    import pandas as pd

    with pd.option_context("mode.string_storage", "python"):
        yield


def cell(text: str) -> str:
    """Return the form of a text in raysim's CSV files.

    >>> cell("=1+1"), cell("'=1+1"), cell("-0.5"), cell("Saint Mary's")
    ("'=1+1", "''=1+1", '-0.5', "Saint Mary's")
    """
    return f"'{text}" if _FORMULA.match(text) and not is_number(text) else text


def text_of(cell: str) -> str:
    """Return the original text of a cell that :func:`cell` wrote."""
    return cell[1:] if _WRITTEN.match(cell) else cell


def write_csv(table: pd.DataFrame, path: Path, *, many_rows: bool = False) -> None:
    """Write a table without its index. With ``many_rows`` Arrow writes it, eight times as fast, with all texts in
    quotes."""
    text = None if many_rows else as_text(table)
    if text is not None:
        path.write_bytes(text.encode())
        return
    texts: set[str] = set()
    safe = _changed(table, cell, texts)
    if not many_rows:
        # Python's writer does not quote a text because of a lone carriage return.
        returns = any("\r" in text for text in texts)
        safe.to_csv(path, index=False, quoting=csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL)
        return
    _write_rows([safe], path)


def write_pieces(tables: Iterable[pd.DataFrame], path: Path) -> None:
    """Write tables of many rows, one after another, in the form of :func:`write_csv` with ``many_rows``. Each table is
    written before the next one is computed."""
    _write_rows((_changed(table, cell) for table in tables), path)


def _write_rows(tables: Iterable[pd.DataFrame], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.csv

    with contextlib.ExitStack() as opened:
        writer = None
        for table in tables:
            rows = pa.Table.from_pandas(table, preserve_index=False)
            if writer is None:
                writer = opened.enter_context(pyarrow.csv.CSVWriter(path, rows.schema))
            writer.write_table(rows)


def as_text(table: pd.DataFrame) -> str | None:
    """Return a table as the CSV text that pandas would write. Return None if a cell needs a ``'`` or quotes, or is not
    a number, truth value or text."""
    names = [str(name) for name in table.columns]
    if len(names) < 2 or not _as_they_are(names):
        return None
    blocks = [",".join(names) + "\n"]
    for first in range(0, len(table), BLOCK):
        block = _lines(table.iloc[first : first + BLOCK])
        if block is None:
            return None
        blocks.append(block)
    return "".join(blocks)


def _lines(table: pd.DataFrame) -> str | None:
    """Return the rows of a table as CSV lines; None as in :func:`as_text`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = []
    for _, column in table.items():
        cells = _cells(column)
        if cells is None:
            return None
        columns.append(cells)
    comma = pa.scalar(",", pa.large_string())
    joined = pc.binary_join_element_wise(*columns, comma, null_handling="replace", null_replacement="")
    whole = pa.LargeListArray.from_arrays(pa.array([0, len(joined)], pa.int64()), joined)
    return f"{pc.binary_join(whole, pa.scalar(chr(10), pa.large_string()))[0].as_py()}\n"


def _cells(column: pd.Series[Any]) -> pa.LargeStringArray | None:
    """Return the cells of a column as pandas would write them, null for missing values. Return None if a cell needs a
    ``'`` or quotes, or is not a number, truth value or text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.dtype == float:
        return _numbers(column.to_numpy())
    kind = column.dtype.kind
    if kind not in "biuO":  # texts are of the last kind too
        return None
    try:
        cells = pa.array(column, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):  # values of several types, or integers beyond 64 bits
        return None
    if isinstance(cells, pa.ChunkedArray):
        cells = cells.combine_chunks()
    arrow_type = cells.type
    if pa.types.is_boolean(arrow_type):
        return pc.if_else(cells, pa.scalar("True", pa.large_string()), pa.scalar("False", pa.large_string()))
    if kind == "O" and not pa.types.is_integer(arrow_type):  # whole numbers with None among them
        empty = pa.types.is_null(arrow_type)
        if not (empty or pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type)):
            return None
        if not (empty or _as_they_are(cells.drop_null().unique().to_pylist())):
            return None
    return cells.cast(pa.large_string())


def _as_they_are(texts: Iterable[str]) -> bool:
    """Return whether all texts are written unchanged, without a ``'`` before them and without quotes."""
    return all(cell(text) == text and not _QUOTED.search(text) for text in texts)


def _numbers(values: NDArray[np.float64]) -> pa.LargeStringArray:
    """Return ``values [n]`` as ``repr`` writes them; null for NaN."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    size = np.abs(values)
    # Arrow and repr write these numbers alike. For others, Arrow drops the ".0" of whole numbers or writes the exponent
    # differently.
    alike = (size >= 1e-4) & (size < 1e10) & (values != np.trunc(values))
    other = ~alike & (values == values)
    texts = pa.array(values, from_pandas=True).cast(pa.large_string())
    if not other.any():
        return texts
    others = pa.array([repr(value) for value in values[other].tolist()], pa.large_string())
    return pc.replace_with_mask(texts, pa.array(other), others)


def read_csv(path: Path, **options: Any) -> pd.DataFrame:
    """Return a table that :func:`write_csv` wrote; ``options`` are options of ``pandas.read_csv``."""
    import pandas as pd

    table: pd.DataFrame = pd.read_csv(path, **options)
    return _changed(table, text_of)


def _changed(table: pd.DataFrame, change: Callable[[str], str], seen: set[str] | None = None) -> pd.DataFrame:
    """Return the table with ``change`` applied to all its texts, column names included. The original texts are added to
    ``seen``."""
    import pandas as pd

    names = [str(name) for name in table.columns]
    written = [change(name) for name in names]
    if seen is not None:
        seen.update(names)
    columns: dict[int, pd.Series[Any]] = {}
    for place, dtype in enumerate(table.dtypes):
        if dtype.kind in "biufmM":  # no texts
            continue
        # Each distinct text is changed once: names repeat over many rows.
        column = table.iloc[:, place]
        texts = {text: change(text) for text in column.unique() if isinstance(text, str)}
        if seen is not None:
            seen.update(texts)
        if any(text != after for text, after in texts.items()):
            columns[place] = column.astype(object).map(lambda value, texts=texts: texts.get(value, value))
    if not columns and names == written and table.columns.is_unique:
        return table
    whole = {name: columns.get(place, table.iloc[:, place]) for place, name in enumerate(written)}
    return pd.DataFrame(whole, index=table.index, copy=False)


def is_number(text: str) -> bool:
    """Return whether Python reads a text as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
